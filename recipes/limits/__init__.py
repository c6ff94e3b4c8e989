"""How well classifiers know their limits, on what comes with fedotp: docs/limits.md."""
