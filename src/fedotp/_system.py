"""The process and the system it runs on: its end, its memory, its clock, the driver of a GPU."""

import ctypes
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from fedotp._text import one_line

if TYPE_CHECKING:
    import torch

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Interrupt:
    """Whether a signal asked to stop."""

    def __init__(self) -> None:
        self.wanted = False


@contextmanager
def listen(on_interrupt: Callable[[], object]) -> Iterator[Interrupt]:
    """Catch SIGINT and SIGTERM within the block; outside the main thread, where Python cannot, catch nothing."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        if interrupt.wanted:
            raise KeyboardInterrupt
        interrupt.wanted = True
        on_interrupt()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_at_once(status: int) -> None:
    """Let the next signal end this process, which is about to exit, with `status` and without a traceback."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os._exit(status))


def die_with_parent(*, at_once: bool = False) -> None:
    """Have the kernel end this process when its parent is gone, however that ended; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL if at_once else signal.SIGTERM)


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
    """Bytes that this process and those it is grouped with may take; None if there is no limit."""
    return min((limit for limit, _ in _limits(system)), default=None)


def memory_left(system: Path = _SYSTEM) -> int | None:
    """Bytes of that which are not taken yet, what caches of files take included; None if there is no limit."""
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
    """Bytes of files that the system frees when memory is needed."""
    try:
        facts = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        return int(facts.get("total_inactive_file") or facts["inactive_file"])
    except (OSError, ValueError, KeyError):
        return 0


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


class _Waited(threading.local):
    seconds = 0.0


_waited = _Waited()


def own_seconds() -> float:
    """A clock that measures the work of this thread."""
    return time.perf_counter() - _waited.seconds


def leave_out(seconds: float) -> None:
    """Take time off this thread's clock that was spent waiting, or on the work of other threads."""
    _waited.seconds += seconds


def open_driver(changes: Sequence[str] = ()) -> None:
    """Have CUDA's driver open the first GPU, if there is one, and Triton find out what it is, while the caller goes on.

    After a call before `import torch` the GPU is open by the time torch is: torch uses the same context of the process.
    Triton hashes hundreds of megabytes of itself before it loads a kernel that it has compiled earlier. Nothing is done
    where one of `changes` to a configuration says where to compute.
    """
    if any(change.startswith("compute.device=") for change in changes):
        return
    threading.Thread(target=_open, name="driver", daemon=True).start()


def _open() -> None:
    with suppress(Exception):  # no driver here, or no Triton: what is needed is asked for again, and missed then
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
            from triton.runtime.cache import triton_key

            triton_key()


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
