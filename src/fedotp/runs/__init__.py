"""Runs: `directory` reads and writes their files, `watch` observes them, `one` executes a run, `many` several.

`tables` compares runs, `leaving` repeats them without some clients, `advice` estimates the benefit of a federation.
"""
