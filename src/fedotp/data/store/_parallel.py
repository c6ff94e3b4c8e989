"""Many bytes read, copied or summed up by threads: all of these go on without the interpreter's lock."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_MOST_THREADS = 8  # memory has no room for more
_PIECE = 4 << 20  # bytes for a thread at a time
_FEW = 8  # pieces: starting threads takes as long


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_pieces(work: Callable[[slice], T], n: int, item_bytes: int) -> Iterator[tuple[slice, T]]:
    """Do `work` on all parts of n items of so many bytes; each part with what came of it, in order."""
    step = max(_PIECE // item_bytes, 1)
    parts = [slice(start, min(start + step, n)) for start in range(0, n, step)]
    if len(parts) < _FEW:
        yield from ((part, work(part)) for part in parts)
        return
    threads = ThreadPoolExecutor(min(n_cores(), _MOST_THREADS))
    try:
        yield from zip(parts, threads.map(work, parts), strict=True)
    finally:
        threads.shutdown(cancel_futures=True)
