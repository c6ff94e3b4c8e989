"""Processes that end with the one that started them."""

import ctypes
import signal
import sys

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def die_with_parent(by: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send a signal to this process when its parent is gone, however that ended; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, by)
