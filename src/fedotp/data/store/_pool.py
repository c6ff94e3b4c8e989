"""Parallel decoding of images by threads or, with many images and cores, by processes.

Threads share the interpreter lock, which limits them to a few hundred images per second. A process starts in 0.1 s,
because it imports neither torch nor NumPy. Crops are returned in anonymous shared memory, which the system frees with
the last process. `_crops` processes single images.
"""

import math
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import Self

import numpy as np
from numpy.typing import NDArray

import fedotp
from fedotp._system import n_cores
from fedotp.data.store._crops import Decoded, Request, Rows, decode

_MOST_THREADS = 8  # more slow down each other and the tower
_MOST_PROCESSES = 32
_FEW_CORES = 4  # with fewer, processes gain little over threads
_FEW_IMAGES = 512  # threads decode fewer before processes have started


class DecoderPool:
    """Pool of decoders that write crops to `pixels` (rows, size, size, 3)."""

    def __init__(self, n_rows: int, size: int) -> None:
        """Create at most as many threads or processes as cores."""
        self._cores = n_cores()
        shape = (n_rows, size, size, 3)
        n_bytes = math.prod(shape)
        self._file = _nameless_file(n_bytes)
        self._rows = mmap.mmap(self._file, n_bytes)
        self.pixels: NDArray[np.uint8] = np.frombuffer(self._rows, np.uint8).reshape(shape)
        self._threads = ThreadPoolExecutor(min(self._cores, _MOST_THREADS))
        self._processes: ProcessPool | None = None

    def __enter__(self) -> Self:
        """Return the pool; threads start with the first image, processes in `expect`."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all threads and processes and drop queued images."""
        try:
            self._threads.shutdown(cancel_futures=True)
        finally:
            if self._processes is not None:
                self._processes.close()
            if self._file >= 0:
                os.close(self._file)

    def expect(self, n_images: int) -> None:
        """Start processes if they are faster for this number of images."""
        n = min(self._cores, _MOST_PROCESSES)
        worth_it = n >= 2 and n_images >= _FEW_IMAGES and self._cores >= _FEW_CORES
        if worth_it and self._processes is None and self._file >= 0 and sys.executable:
            self._processes = ProcessPool(self._file, self._rows, n)

    def submit(self, requests: Sequence[Request], most_at_a_time: int = 8) -> Iterator[Decoded]:
        """Decode images in the background; iterate over the results, in the same order, to wait for them.

        A process gets at most `most_at_a_time` images together, fewer if there are not enough for all processes.
        """
        if self._processes is not None:
            sent = [request.portable() for request in requests]
            if all(isinstance(request.image, str | bytes) for request in sent):
                return self._processes.submit(sent, most_at_a_time)
        parts = [self._threads.submit(decode, request, self._rows) for request in requests]
        return (part.result() for part in parts)


def _nameless_file(n_bytes: int) -> int:
    """Return a descriptor of memory to share with other processes; -1 if the system, unlike Linux, has none."""
    if not hasattr(os, "memfd_create"):
        return -1
    descriptor = os.memfd_create("fedotp crops")
    try:
        os.ftruncate(descriptor, n_bytes)
    except OSError:  # larger than the limit of file sizes
        os.close(descriptor)
        return -1
    return descriptor


_START = (
    "import sys; facts, sys.path[:] = sys.argv[1:4], sys.argv[4:]; "
    "from fedotp.data.store._crops import serve; serve(*map(int, facts))"
)
# By default glibc returns a freed image to the system and allocates new pages for the next one, which takes 20 % of the
# time, or more in many processes at once. These settings make it keep 64 MiB for images.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}


class DecodingProcess:
    """A process that decodes images and writes their crops to the memory of a descriptor."""

    def __init__(self, memory: int) -> None:
        """Start the process; if it cannot start, `ask` raises.

        It is not forked, because this process may have threads and a GPU, and not started by `multiprocessing`, which
        would import the running program.
        """
        self.is_up = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection, theirs = Pipe()
        numbers = (theirs.fileno(), memory, os.getpid())
        paths = [*sys.path, str(Path(fedotp.__file__).parents[1])]
        with theirs, suppress(OSError):  # no memory, no descriptors left
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, *map(str, numbers), *paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_MALLOC | os.environ,
                pass_fds=numbers[:2],
                start_new_session=True,  # only this process receives Ctrl-C, and stops the others
            )

    def ask(self, requests: Sequence[Request]) -> list[Decoded | None]:
        """Decode images; the result is None for one that is too large. Raise `EOFError` if the process has ended."""
        try:
            if not self.is_up:
                self._connection.recv()
                self.is_up = True
            self._connection.send(requests)
            answer: list[Decoded | None] | Exception = self._connection.recv()
        except ConnectionError as error:
            raise EOFError from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        """Kill the process without waiting for its end."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> str:
        """Wait for the end of a process that was killed or has ended by itself, and describe it."""
        self._connection.close()
        code = 0 if self._process is None else self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"


class ProcessPool:
    """Pool of `n` decoding processes that write crops to `rows`, the memory of a descriptor."""

    def __init__(self, memory: int, rows: Rows, n: int) -> None:
        self._memory, self._rows = memory, rows
        self.processes = [DecodingProcess(memory) for _ in range(n)]
        self._idle: SimpleQueue[int] = SimpleQueue()
        for number in range(n):
            self._idle.put(number)
        self._threads = ThreadPoolExecutor(n)
        self._is_closed = False

    def submit(self, requests: Sequence[Request], most_at_a_time: int) -> Iterator[Decoded]:
        """Decode images as `DecoderPool.submit` does."""
        step = max(1, min(-(-len(requests) // len(self.processes)), most_at_a_time))
        parts = [self._threads.submit(self._look, requests[i : i + step]) for i in range(0, len(requests), step)]
        return (looked for part in parts for looked in part.result())

    def close(self) -> None:
        """End all threads and processes and drop queued images."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()
        self._threads.shutdown()
        for process in self.processes:
            process.end()

    def _look(self, requests: Sequence[Request]) -> list[Decoded]:
        number = self._idle.get()
        try:
            found = self._asked(number, requests)
        finally:
            self._idle.put(number)
        return [looked or decode(request, self._rows) for looked, request in zip(found, requests, strict=True)]

    def _asked(self, number: int, requests: Sequence[Request], *, again: bool = False) -> list[Decoded | None]:
        """Ask a process; replace one that has ended, and ask again for one image at a time, to find the cause."""
        process = self.processes[number]
        try:
            return process.ask(requests)
        except EOFError:
            if self._is_closed or not process.is_up:  # it cannot start: this thread decodes
                return [Decoded(b"", "dropped") if self._is_closed else None for _ in requests]
            ending = process.end()
            self.processes[number] = DecodingProcess(self._memory)
            if again:
                return [Decoded(requests[0].digest, f"its decoding process ended ({ending})")]
            return [looked for request in requests for looked in self._asked(number, [request], again=True)]
