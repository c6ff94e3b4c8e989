"""Memory: how much of a GPU and of the machine is this process's to take, and what ran out where Python, torch or the
loader say so. Linux lets a container or a service have less, perhaps, than the machine has.
"""

import errno
from collections.abc import Iterator
from pathlib import Path
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

_SYSTEM = Path("/")
_V2, _V1 = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")


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


def memory_limit(system: Path = _SYSTEM) -> int | None:
    """Bytes that this process and those it is grouped with may take; None if nobody says."""
    return min((limit for limit, _ in _limits(system)), default=None)


def memory_left(system: Path = _SYSTEM) -> int | None:
    """Bytes of that which are not taken yet, what caches of files take included; None if nobody says."""
    return min((max(0, limit - used) for limit, used in _limits(system)), default=None)


def _limits(system: Path) -> Iterator[tuple[int, int]]:
    """The limit of each group that this process is in, from the innermost to the outermost, and what is used of it."""
    for folder, (limit, usage) in _groups(system):
        allowed, used = _number(folder / limit), _number(folder / usage)
        if allowed is not None:
            yield allowed, max(0, (used or 0) - _cached(folder))


def _groups(system: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    """A container sees its own group as the root, whatever path its parent gave it: the root is always tried."""
    try:
        lines = (system / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and "memory" not in kinds.split(","):
            continue
        mounted = system / "sys/fs/cgroup" / ("memory" if kinds else "")
        inner = Path(path.lstrip("/"))
        for part in (inner, *inner.parents) if ".." not in inner.parts else (Path(),):
            yield mounted / part, _V1 if kinds else _V2


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such file, or "max"
        return None


def _cached(folder: Path) -> int:
    """Bytes of files that the system lets go of when somebody asks for memory."""
    try:
        facts = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        return int(facts.get("total_inactive_file") or facts["inactive_file"])
    except (OSError, ValueError, KeyError):
        return 0
