"""Memory: how much of a GPU is this process's to take, and what ran out where Python, torch or the loader say so."""

import errno
from typing import TYPE_CHECKING

from fedotp._text import one_line

if TYPE_CHECKING:
    import torch

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


_sharing = 1  # processes on one GPU, this one among them


def share_gpu(n_processes: int) -> None:
    """Others use the GPU of this process, too: so many, this one included."""
    global _sharing
    _sharing = n_processes


def free_gpu_bytes(device: "torch.device") -> int:
    """What is free on a GPU, at most this process's part of the whole."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return max(0, min(free, total // _sharing - torch.cuda.memory_reserved(device)))
