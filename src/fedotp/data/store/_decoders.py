"""Images looked at side by side: by threads or, where there are many images and cores, by processes.

Threads share the interpreter's lock, which lets a few hundred images a second through however many cores there are.
A process is up in a tenth of a second. Each has one thread here that hands it images and waits; crops come back in
memory that all of them share, which has no name and is gone with the last of them.
"""

import mmap
import os
import queue
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedotp.data.store._crops import Looked, Request, Rows, look
from fedotp.data.store._parallel import n_cores
from fedotp.data.store._process import DecodingProcess, GoneError

_MOST_THREADS = 8  # more get in each other's and the tower's way
_MOST_PROCESSES = 32
_FEW_CORES = 4  # with fewer, processes gain little over threads
_FEW_IMAGES = 512  # threads have looked at them before processes are up


class Decoders:
    """Looks at images; their crops of size x size go to `pixels` (rows, size, size, 3)."""

    def __init__(self, n_rows: int, size: int, workers: int | None = None) -> None:
        """There are at most `workers` threads or processes, by default as many as cores."""
        self._cores, self._workers = n_cores(), workers
        self._row_bytes = size * size * 3
        self._file = _nameless_file(n_rows * self._row_bytes)
        memory = mmap.mmap(self._file, n_rows * self._row_bytes)
        self.pixels: NDArray[np.uint8] = np.frombuffer(memory, np.uint8).reshape(n_rows, size, size, 3)
        self._rows = Rows(memoryview(memory), self._row_bytes)
        self._threads = ThreadPoolExecutor(workers or min(self._cores, _MOST_THREADS))
        self._processes: list[DecodingProcess] = []
        self._idle: queue.SimpleQueue[DecodingProcess] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        """Threads start with the first image; see `expect` for processes."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all of them; images that nobody has looked at yet are forgotten."""
        try:
            self._threads.shutdown(cancel_futures=True)
        finally:
            for process in self._processes:
                process.stop()
            if self._file >= 0:
                os.close(self._file)

    def expect(self, n_images: int) -> None:
        """Make ready for so many images: processes are started if they are worth it."""
        n = min(self._workers or self._cores, _MOST_PROCESSES)
        if self._processes or n < 2 or n_images < _FEW_IMAGES or self._cores < _FEW_CORES:
            return
        if self._file < 0 or not sys.executable:
            return
        self._threads.shutdown()
        self._threads = ThreadPoolExecutor(n)
        self._processes = [DecodingProcess(self._file, self._row_bytes) for _ in range(n)]
        for process in self._processes:
            process.start()
            self._idle.put(process)

    def submit(self, requests: Sequence[Request], most_at_a_time: int = 8) -> Iterator[Looked]:
        """Look at images in the background; wait for what is found, in the same order, by iterating.

        A process is handed `most_at_a_time` images together, or fewer, so that all have something to do.
        """
        n = len(self._processes)
        step = min(-(-len(requests) // n), most_at_a_time) if n else 1
        work = self._look_elsewhere if n else self._look_here
        parts = [self._threads.submit(work, requests[i : i + step]) for i in range(0, len(requests), step)]
        return (looked for part in parts for looked in part.result())

    def _look_here(self, requests: Sequence[Request]) -> list[Looked]:
        return [look(request, self._rows) for request in requests]

    def _look_elsewhere(self, requests: Sequence[Request]) -> list[Looked]:
        pictures = [request.image.portable() for request in requests]
        if None in pictures:
            return self._look_here(requests)
        sent = [request._replace(image=picture) for request, picture in zip(requests, pictures, strict=True) if picture]
        process = self._idle.get()
        try:
            return process.ask(sent)
        except GoneError:  # one after the other, to see which of them it was
            return [self._ask_again(process, request) for request in sent]
        finally:
            self._idle.put(process)

    def _ask_again(self, process: DecodingProcess, request: Request) -> Looked:
        try:
            return process.ask([request])[0]
        except GoneError as gone:
            if gone.at_work:
                return Looked(request.digest, f"decoding it ended its process ({gone})")
            return look(request, self._rows)


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
