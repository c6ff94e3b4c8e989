"""Processes that end with the one that started them."""

import ctypes
import signal
import sys

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


def die_with_parent(*, at_once: bool = False) -> None:
    """Have the kernel end this process when its parent is gone, however that ended; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL if at_once else signal.SIGTERM)
