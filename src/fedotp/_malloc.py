"""How glibc manages memory while prompts are trained."""

import ctypes
import os
from contextlib import suppress

# Options of glibc's mallopt, and what they are set to.
_KEPT = {
    -8: 1,  # M_ARENA_MAX: one for all threads, or large pieces could not be kept
    -3: 1 << 30,  # M_MMAP_THRESHOLD: what is smaller is not given back at once, ...
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: ... and not soon
    -2: 64 << 20,  # M_TOP_PAD
}


def keep_freed() -> None:
    """Have glibc keep freed memory for the next tensors, unless the environment says how it is to do (MALLOC_...).

    Every step of training takes and frees the same large pieces. To have them from the system anew each time, page by
    page, takes a seventh of the processor time where towers are small. Elsewhere than on glibc nothing happens.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    with suppress(OSError, AttributeError, TypeError):
        set_option = ctypes.CDLL(None).mallopt
        for option, value in _KEPT.items():
            set_option(option, value)
