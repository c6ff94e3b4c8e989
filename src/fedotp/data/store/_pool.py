"""Images decoded side by side: by threads or, where there are many images and cores, by processes.

Threads share the interpreter's lock, which lets a few hundred images a second through however many cores there are.
A process is up in a tenth of a second, because it imports neither torch nor NumPy. Crops come back in shared memory
without a name, which is freed with the last process that uses it. What is done with one image is in `_crops`.
"""

import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Self

import numpy as np
from numpy.typing import NDArray

import fedotp
from fedotp._system import n_cores
from fedotp.data.store._crops import Decoded, Request, Rows, decode

_MOST_THREADS = 8  # more get in each other's and the tower's way
_MOST_PROCESSES = 32
_FEW_CORES = 4  # with fewer, processes gain little over threads
_FEW_IMAGES = 512  # threads have looked at them before processes are up


class DecoderPool:
    """Looks at images; their crops of size x size go to `pixels` (rows, size, size, 3)."""

    def __init__(self, n_rows: int, size: int) -> None:
        """There are at most as many threads or processes as cores."""
        self._cores = n_cores()
        shape = (n_rows, size, size, 3)
        n_bytes = math.prod(shape)
        self._file = _nameless_file(n_bytes)
        memory = mmap.mmap(self._file, n_bytes)
        self.pixels: NDArray[np.uint8] = np.frombuffer(memory, np.uint8).reshape(shape)
        self._rows = Rows(memoryview(memory))
        self._threads = ThreadPoolExecutor(min(self._cores, _MOST_THREADS))
        self._processes: ProcessPool | None = None

    def __enter__(self) -> Self:
        """Threads start with the first image; see `expect` for processes."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all threads and processes; images that are still waiting are dropped."""
        try:
            self._threads.shutdown(cancel_futures=True)
        finally:
            if self._processes is not None:
                self._processes.close()
            if self._file >= 0:
                os.close(self._file)

    def expect(self, n_images: int) -> None:
        """Make ready for so many images: processes are started if they are worth it."""
        n = min(self._cores, _MOST_PROCESSES)
        worth_it = n >= 2 and n_images >= _FEW_IMAGES and self._cores >= _FEW_CORES
        if worth_it and self._processes is None and self._file >= 0 and sys.executable:
            self._processes = ProcessPool(self._file, n)

    def submit(self, requests: Sequence[Request], most_at_a_time: int = 8) -> Iterator[Decoded]:
        """Look at images in the background; wait for what is found, in the same order, by iterating.

        A process is handed `most_at_a_time` images together, or fewer, so that all have something to do.
        """
        if self._processes is not None:
            pictures = [request.image.portable() for request in requests]
            sent = [request._replace(image=image) for request, image in zip(requests, pictures, strict=True) if image]
            if len(sent) == len(requests):
                return self._processes.submit(sent, most_at_a_time)
        parts = [self._threads.submit(decode, request, self._rows) for request in requests]
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


_START = (
    "import sys; facts, sys.path[:] = sys.argv[1:4], sys.argv[4:]; "
    "from fedotp.data.store._crops import serve; serve(*map(int, facts))"
)
# A decoded picture goes back to the system when it is freed, and the next one is made of new pages, which takes a fifth
# of the time and more where many processes ask for pages at once. These have glibc keep 64 MiB, and pictures in them.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}


class GoneError(Exception):
    """The process ended by itself; `at_work` if it was up by then."""

    def __init__(self, words: str, *, at_work: bool) -> None:
        super().__init__(words)
        self.at_work = at_work


class DecodingProcess:
    """A process that looks at images and writes their crops to the memory behind a descriptor."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._is_up = False
        self._cannot_start = False

    def start(self) -> None:
        """Start the process; if that is impossible, the first `ask` raises.

        It is not forked, because this process may have threads and a GPU, and not started by `multiprocessing`, which
        would have it import the program that runs here.
        """
        self._is_up, self._process = False, None
        self._connection, theirs = Pipe()
        numbers = (theirs.fileno(), self._memory, os.getpid())
        paths = [*sys.path, str(Path(fedotp.__file__).parents[1])]
        with theirs, suppress(OSError):  # no memory, no descriptors left
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, *map(str, numbers), *paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_MALLOC | os.environ,
                pass_fds=numbers[:2],
                start_new_session=True,  # Ctrl-C is for this process, which stops the others
            )

    def ask(self, requests: Sequence[Request]) -> list[Decoded | None]:
        """Have images looked at; None: it is too large for that. If the process is gone, by that or else, `GoneError`.

        The next call starts it anew.
        """
        if self._cannot_start:
            raise GoneError("it cannot be started", at_work=False)
        if self._connection is None:
            self.start()
        assert self._connection is not None
        try:
            if not self._is_up:
                self._connection.recv()
                self._is_up = True
            self._connection.send(requests)
            answer: list[Decoded | None] | Exception = self._connection.recv()
        except (EOFError, ConnectionError):
            self._cannot_start = not self._is_up
            words = _last_words(self._process)
            self.stop()
            raise GoneError(words, at_work=self._is_up) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        """Let the process end; `stop` waits for that."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """End the process now."""
        self.kill()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.wait()
            self._process = None


def _last_words(process: subprocess.Popen[bytes] | None) -> str:
    if process is None:
        return "it was never started"
    code = process.wait()
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"


class ProcessPool:
    """`n` decoding processes. Crops go to `memory`, a descriptor that all of them share, row by row."""

    def __init__(self, memory: int, n: int) -> None:
        self._rows = Rows(memory)
        self._processes = [DecodingProcess(memory) for _ in range(n)]
        self._idle: SimpleQueue[DecodingProcess] = SimpleQueue()
        for process in self._processes:
            process.start()
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(n)
        self._is_closed = False

    def submit(self, requests: Sequence[Request], most_at_a_time: int) -> Iterator[Decoded]:
        """As `DecoderPool.submit`."""
        step = max(1, min(-(-len(requests) // len(self._processes)), most_at_a_time))
        parts = [self._threads.submit(self._look, requests[i : i + step]) for i in range(0, len(requests), step)]
        return (looked for part in parts for looked in part.result())

    def close(self) -> None:
        """End all threads and processes; images that are still waiting are dropped."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
        self._threads.shutdown()
        for process in self._processes:
            process.stop()

    def _look(self, requests: Sequence[Request]) -> list[Decoded]:
        process = self._idle.get()
        try:
            found = process.ask(requests)
        except GoneError:  # one after the other, to see which of them it was
            found = [self._ask_again(process, request) for request in requests]
        finally:
            self._idle.put(process)
        return [looked or decode(request, self._rows) for looked, request in zip(found, requests, strict=True)]

    def _ask_again(self, process: DecodingProcess, request: Request) -> Decoded | None:
        if self._is_closed:
            return Decoded(b"", "dropped")
        try:
            return process.ask([request])[0]
        except GoneError as gone:
            return Decoded(request.digest, f"decoding it ended its process ({gone})") if gone.at_work else None
