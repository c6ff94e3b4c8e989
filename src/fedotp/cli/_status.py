"""Exit statuses beside 0, and beside 2 for bad input."""

SOME_FAILED = 1
TRY_AGAIN = 75  # EX_TEMPFAIL: what is wrong may pass by itself
INTERRUPTED = 130  # ended by Ctrl-C
