"""Signals, memory limits and clock of this process, and the GPU driver."""

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
    """Flag that a signal requested a stop."""

    def __init__(self) -> None:
        self.wanted = False


@contextmanager
def listen(on_interrupt: Callable[[], object]) -> Iterator[Interrupt]:
    """Catch SIGINT and SIGTERM within the block; do nothing outside the main thread, where Python cannot."""
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
    """Make the next signal exit this process with `status` and without a traceback."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os._exit(status))


def die_with_parent(*, at_once: bool = False) -> None:
    """Make the kernel end this process when its parent exits for any reason; Linux only."""
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
    """Return a message if `error` means that memory or threads are exhausted, else None."""
    words = str(error).lower()
    raised = isinstance(error, RuntimeError | OSError | ImportError) and any(sign in words for sign in _SIGNS)
    if not (raised or isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM):
        return None
    said = f" ({one_line(error, 160)})" if words else ""
    return (
        f"not enough memory{said}; close other programs or lower compute.group_size or batch sizes; saved data are kept"
    )


_sharing = 1  # processes on one GPU, including this one


def share_gpu(n_processes: int) -> None:
    """Set the number of processes, including this one, that share the GPU."""
    global _sharing
    _sharing = n_processes


def free_gpu_bytes(device: "torch.device") -> int:
    """Return the free bytes of a GPU, at most this process's share of the total."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return max(0, min(free, total // _sharing - torch.cuda.memory_reserved(device)))


def available_memory() -> int | None:
    """Return the memory available without swapping, including file caches; None if the system does not report it."""
    try:
        facts = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
        return 1024 * int(facts["MemAvailable"].split()[0])
    except (OSError, ValueError, KeyError):
        return None


def memory_limit(system: Path = _SYSTEM) -> int | None:
    """Return the memory limit in bytes of this process's control groups; None if there is none."""
    return min((limit for limit, _ in _limits(system)), default=None)


def memory_left(system: Path = _SYSTEM) -> int | None:
    """Return the unused bytes of that limit, file caches counted as unused; None if there is no limit."""
    return min((max(0, limit - used) for limit, used in _limits(system)), default=None)


def _limits(system: Path) -> Iterator[tuple[int, int]]:
    """Yield the limit and usage of each control group of this process, innermost first."""
    for folder, (limit, usage) in _groups(system):
        allowed, used = _number(folder / limit), _number(folder / usage)
        if allowed is not None:
            yield allowed, max(0, (used or 0) - _cached(folder))


def _groups(system: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    """Yield folders of control groups and their file names; a container sees its own group as the root."""
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
    """Return the bytes of cached files, which the system frees when memory is needed."""
    try:
        facts = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        return int(facts.get("total_inactive_file") or facts["inactive_file"])
    except (OSError, ValueError, KeyError):
        return 0


# Options of glibc's mallopt and their values.
_MALLOPT = {
    -8: 1,  # M_ARENA_MAX: one arena for all threads, so that large blocks can be reused
    -3: 1 << 30,  # M_MMAP_THRESHOLD: do not return smaller blocks immediately, ...
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: ... nor soon after
    -2: 64 << 20,  # M_TOP_PAD
}


def keep_freed() -> None:
    """Make glibc reuse freed memory for the next tensors, unless the environment configures it (MALLOC_...).

    Every training step allocates and frees the same large blocks; with small towers, getting them from the system takes
    a seventh of the processor time. Without glibc this does nothing.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    with suppress(OSError, AttributeError, TypeError):
        set_option = ctypes.CDLL(None).mallopt
        for option, value in _MALLOPT.items():
            set_option(option, value)


class _Waited(threading.local):
    seconds = 0.0


_waited = _Waited()


def own_seconds() -> float:
    """Return a clock of the working time of this thread, without the times given to `leave_out`."""
    return time.perf_counter() - _waited.seconds


def leave_out(seconds: float) -> None:
    """Subtract from this thread's clock time spent waiting or on the work of other threads."""
    _waited.seconds += seconds


def open_driver(changes: Sequence[str] = ()) -> None:
    """Open the first GPU, if any, and compute Triton's key in a thread, while the caller continues.

    Call it before `import torch`, which uses the same CUDA context of the process. Triton hashes hundreds of megabytes
    of itself before it loads a cached kernel. Does nothing if one of `changes` to a configuration sets the device.
    """
    if any(change.startswith("compute.device=") for change in changes):
        return
    threading.Thread(target=_open, name="driver", daemon=True).start()


def _open() -> None:
    with suppress(Exception):  # no driver or no Triton: a later use reports what is missing
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) == 0:
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
            from triton.runtime.cache import triton_key

            triton_key()


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
