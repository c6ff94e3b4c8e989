"""Images looked at side by side: by threads or, where there are many images and cores, by processes.

Threads share the interpreter's lock, which lets a few hundred images a second through however many cores there are.
A process is up in a tenth of a second. Crops come back in memory that all of them share, which has no name and is gone
with the last of them.
"""

import math
import mmap
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedotp.data.store._crops import Looked, Request, Rows, look
from fedotp.data.store._parallel import n_cores
from fedotp.data.store._pool import Dispatcher, DispatcherGoneError

_MOST_THREADS = 8  # more get in each other's and the tower's way
_MOST_PROCESSES = 32
_FEW_CORES = 4  # with fewer, processes gain little over threads
_FEW_IMAGES = 512  # threads have looked at them before processes are up


class Decoders:
    """Looks at images; their crops of size x size go to `pixels` (rows, size, size, 3).

    With `room` for so many bytes in a row, `pixels` (rows, room) have whole pictures, for somebody else to crop.
    """

    def __init__(self, n_rows: int, size: int, workers: int | None = None, room: int = 0) -> None:
        """There are at most `workers` threads or processes, by default as many as cores."""
        self._cores, self._workers, self.room = n_cores(), workers, room
        shape = (n_rows, room) if room else (n_rows, size, size, 3)
        n_bytes = math.prod(shape)
        self._file = _nameless_file(n_bytes)
        memory = mmap.mmap(self._file, n_bytes)
        self.pixels: NDArray[np.uint8] = np.frombuffer(memory, np.uint8).reshape(shape)
        self._rows = Rows(memoryview(memory))
        self._threads = ThreadPoolExecutor(workers or min(self._cores, _MOST_THREADS))
        self._dispatcher: Dispatcher | None = None

    def __enter__(self) -> Self:
        """Threads start with the first image; see `expect` for processes."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all of them; images that nobody has looked at yet are forgotten."""
        try:
            self._threads.shutdown(cancel_futures=True)
        finally:
            if self._dispatcher is not None:
                self._dispatcher.close()
            if self._file >= 0:
                os.close(self._file)

    def expect(self, n_images: int) -> None:
        """Make ready for so many images: processes are started if they are worth it."""
        n = min(self._workers or self._cores, _MOST_PROCESSES)
        if self._dispatcher or n < 2 or n_images < _FEW_IMAGES or self._cores < _FEW_CORES:
            return
        if self._file < 0 or not sys.executable:
            return
        self._dispatcher = Dispatcher(self._file, n)

    def submit(self, requests: Sequence[Request], most_at_a_time: int = 8) -> Iterator[Looked]:
        """Look at images in the background; wait for what is found, in the same order, by iterating.

        A process is handed `most_at_a_time` images together, or fewer, so that all have something to do.
        """
        if self._dispatcher is not None:
            pictures = [request.image.portable() for request in requests]
            sent = [request._replace(image=image) for request, image in zip(requests, pictures, strict=True) if image]
            if len(sent) == len(requests):
                with suppress(DispatcherGoneError):
                    return self._told(self._dispatcher.submit(sent, most_at_a_time), requests)
        return self._looked_here(requests)

    def _told(self, answer: Callable[[], list[Looked]], requests: Sequence[Request]) -> Iterator[Looked]:
        try:
            yield from answer()
        except DispatcherGoneError:
            yield from self._looked_here(requests)

    def _looked_here(self, requests: Sequence[Request]) -> Iterator[Looked]:
        parts = [self._threads.submit(look, request, self._rows) for request in requests]
        return (part.result() for part in parts)


def _nameless_file(n_bytes: int) -> int:
    """A descriptor of memory that can be handed on; -1, which means memory of this process alone, if there is none."""
    if os.name != "posix":
        return -1
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fedotp crops")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, n_bytes)
    except OSError:  # larger than files may be
        os.close(descriptor)
        return -1
    return descriptor
