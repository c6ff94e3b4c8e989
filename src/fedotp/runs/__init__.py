"""Runs: from a configuration to a directory with prompts and numbers, and back.

`directory` reads and writes the files, `watch` observes, `one` makes a run, `many` makes several, `tables` compares
them, `leaving` repeats them without some clients.
"""
