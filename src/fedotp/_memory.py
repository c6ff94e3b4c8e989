"""Memory, threads or address space that ran out: Python, NumPy, torch and the loader each say it in their own way."""

import errno

from fedotp._text import one_line

_SIGNS = (
    "can't allocate memory",  # torch on the CPU
    "not enough memory",
    "out of memory",  # torch on a GPU
    "cannot allocate memory",  # the system
    "can't start new thread",  # Python
    "failed to map segment",  # the loader of torch's own libraries
    "failed to create thread",
)


def shortage(error: BaseException) -> str | None:
    """One line if `error` means that memory or threads ran out; None if it is something else."""
    words = str(error).lower()
    raised = isinstance(error, RuntimeError | OSError | ImportError) and any(sign in words for sign in _SIGNS)
    if not (raised or isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM):
        return None
    said = f" ({one_line(error, 160)})" if words else ""
    return (
        f"not enough memory{said}; close other programs, or lower compute.group_size or the batch sizes; "
        "what was written down is kept"
    )
