"""Measurements, kept apart from the tests: ratios of things timed side by side in one run."""
