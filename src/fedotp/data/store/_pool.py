"""Images decoded side by side: by threads or, where there are many images and cores, by processes.

Threads share the interpreter's lock, which lets a few hundred images a second through however many cores there are.
A process is up in a tenth of a second. Crops come back in shared memory without a name, which is freed with the last
process that uses it.

One more process, the dispatcher, stands between this one and the decoding processes and hands out images. A dozen
threads that do so would keep the interpreter's lock from the thread that drives the image tower. What a decoding
process does with one image is in `_crops`. Neither imports torch or NumPy before it is needed.
"""

import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Self

import fedotp
from fedotp._system import die_with_parent, n_cores
from fedotp.data.store._crops import Decoded, Request, Rows, decode
from fedotp.images import room_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_THREADS = 8  # more get in each other's and the tower's way
_MOST_PROCESSES = 32
_FEW_CORES = 4  # with fewer, processes gain little over threads
_FEW_IMAGES = 512  # threads have looked at them before processes are up


class DecoderPool:
    """Looks at images; their crops of size x size go to `pixels` (rows, size, size, 3).

    With `room` for so many bytes in a row, `pixels` (rows, room) have whole pictures, to be cropped later.
    """

    def __init__(self, n_rows: int, size: int, room: int = 0) -> None:
        """There are at most as many threads or processes as cores."""
        import numpy as np  # not in a decoding process

        self._cores, self.room = n_cores(), room
        shape = (n_rows, room) if room else (n_rows, size, size, 3)
        n_bytes = math.prod(shape)
        self._file = _nameless_file(n_bytes)
        memory = mmap.mmap(self._file, n_bytes)
        self.pixels: NDArray[np.uint8] = np.frombuffer(memory, np.uint8).reshape(shape)
        self._rows = Rows(memoryview(memory))
        self._threads = ThreadPoolExecutor(min(self._cores, _MOST_THREADS))
        self._dispatcher: Dispatcher | None = None

    def __enter__(self) -> Self:
        """Threads start with the first image; see `expect` for processes."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all threads and processes; images that are still waiting are dropped."""
        try:
            self._threads.shutdown(cancel_futures=True)
        finally:
            if self._dispatcher is not None:
                self._dispatcher.close()
            if self._file >= 0:
                os.close(self._file)

    def expect(self, n_images: int) -> None:
        """Make ready for so many images: processes are started if they are worth it."""
        n = min(self._cores, _MOST_PROCESSES)
        if self._dispatcher or n < 2 or n_images < _FEW_IMAGES or self._cores < _FEW_CORES:
            return
        if self._file < 0 or not sys.executable:
            return
        self._dispatcher = Dispatcher(self._file, n)

    def submit(self, requests: Sequence[Request], most_at_a_time: int = 8) -> Iterator[Decoded]:
        """Look at images in the background; wait for what is found, in the same order, by iterating.

        A process is handed `most_at_a_time` images together, or fewer, so that all have something to do.
        """
        if self._dispatcher is not None:
            pictures = [request.image.portable() for request in requests]
            sent = [request._replace(image=image) for request, image in zip(requests, pictures, strict=True) if image]
            if len(sent) == len(requests):
                with suppress(DispatcherGoneError):
                    return self._answers_of(self._dispatcher.submit(sent, most_at_a_time), requests)
        return self._decode_here(requests)

    def _answers_of(self, answer: Callable[[], list[Decoded]], requests: Sequence[Request]) -> Iterator[Decoded]:
        try:
            yield from answer()
        except DispatcherGoneError:
            yield from self._decode_here(requests)

    def _decode_here(self, requests: Sequence[Request]) -> Iterator[Decoded]:
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
    "import sys; n = int(sys.argv[2]); facts, sys.path[:] = sys.argv[3 : 3 + n], sys.argv[3 + n :]; "
    "from importlib import import_module; import_module(sys.argv[1]).serve(*map(int, facts))"
)
# A decoded picture goes back to the system when it is freed, and the next one is made of new pages, which takes a fifth
# of the time and more where many processes ask for pages at once. These have glibc keep 64 MiB, and pictures in them.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}

_TIMEOUT = 5.0  # seconds for a picture that is being decoded at the end


def start_process(module: str, memory: int, *facts: int) -> tuple["subprocess.Popen[bytes] | None", Connection]:
    """Start a process that does nothing but `module`'s `serve` of: a pipe, `memory`, the parent's number, `facts`.

    Returns the process, None if that is impossible, and the other end of the pipe. It is not forked, because this
    process may have threads and a GPU, and not started by `multiprocessing`, which would have it import the program
    that runs here.
    """
    ours, theirs = Pipe()
    numbers = (theirs.fileno(), memory, os.getpid(), *facts)
    paths = [*sys.path, str(Path(fedotp.__file__).parents[1])]
    process = None
    with theirs, suppress(OSError):  # no memory, no descriptors left
        process = subprocess.Popen(
            [sys.executable, "-c", _START, module, str(len(numbers)), *map(str, numbers), *paths],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_MALLOC | os.environ,
            pass_fds=numbers[:2],
            start_new_session=True,  # Ctrl-C is for this process, which stops the others
        )
    return process, ours


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
        """Start the process; if that is impossible, the first `ask` raises."""
        self._is_up = False
        self._process, self._connection = start_process("fedotp.data.store._crops", self._memory)

    def ask(self, requests: Sequence[Request]) -> list[Decoded]:
        """Have images looked at. If the process is gone, by that or else, `GoneError`; the next call starts it anew."""
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
            answer = _answer(self._connection)
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


def _answer(connection: Connection) -> list[Decoded] | Exception:
    """What it says in the end; before, it may ask for room to decode a large picture."""
    answer: int | list[Decoded] | Exception = connection.recv()
    while isinstance(answer, int):
        with room_for(answer):
            connection.send(None)
            connection.recv()  # it has left
        answer = connection.recv()
    return answer


def _last_words(process: subprocess.Popen[bytes] | None) -> str:
    if process is None:
        return "it was never started"
    code = process.wait()
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"


class ProcessPool:
    """`n` decoding processes. Crops go to `memory`, a descriptor that all of them share, row by row."""

    def __init__(self, memory: int, n: int) -> None:
        """Start them."""
        self._rows = Rows(memory)
        self._processes = [DecodingProcess(memory) for _ in range(n)]
        self._idle: SimpleQueue[DecodingProcess] = SimpleQueue()
        for process in self._processes:
            process.start()
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(n)

    def submit(self, requests: Sequence[Request], most_at_a_time: int) -> Callable[[], list[Decoded]]:
        """Look at images in the background; the answer waits for what is found, in the same order.

        A process is handed `most_at_a_time` images together, or fewer, so that all have something to do.
        """
        step = max(1, min(-(-len(requests) // len(self._processes)), most_at_a_time))
        parts = [self._threads.submit(self._look, requests[i : i + step]) for i in range(0, len(requests), step)]
        return lambda: [looked for part in parts for looked in part.result()]

    def close(self) -> None:
        """End all threads and processes; images that are still waiting are dropped."""
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.stop()

    def _look(self, requests: Sequence[Request]) -> list[Decoded]:
        process = self._idle.get()
        try:
            return process.ask(requests)
        except GoneError:  # one after the other, to see which of them it was
            return [self._ask_again(process, request) for request in requests]
        finally:
            self._idle.put(process)

    def _ask_again(self, process: DecodingProcess, request: Request) -> Decoded:
        try:
            return process.ask([request])[0]
        except GoneError as gone:
            if gone.at_work:
                return Decoded(request.digest, f"decoding it ended its process ({gone})")
            return decode(request, self._rows)


class DispatcherGoneError(Exception):
    """The process ended by itself, or never was."""


class Dispatcher:
    """The process, seen from the one that started it, and `n` decoding processes of its own."""

    def __init__(self, memory: int, n: int) -> None:
        """Start it; if that is impossible, the first answer raises. Crops go to the descriptor `memory`."""
        self._process, self._connection = start_process("fedotp.data.store._pool", memory, n)
        self._n_asked = self._n_answered = 0
        self._answers: dict[int, list[Decoded] | Exception] = {}

    @property
    def process(self) -> "subprocess.Popen[bytes] | None":
        """The process itself, if it could be started."""
        return self._process

    def submit(self, requests: Sequence[Request], most_at_a_time: int) -> Callable[[], list[Decoded]]:
        """As `ProcessPool.submit`; if the process is gone, the answer, or this call, raises `DispatcherGoneError`."""
        number = self._n_asked
        with _noticed():
            self._connection.send((requests, most_at_a_time))
        self._n_asked += 1
        return lambda: self._answer(number)

    def close(self) -> None:
        """End all processes."""
        self._connection.close()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_TIMEOUT)
            self._process.kill()  # the others end with it
            self._process.wait()

    def _answer(self, number: int) -> list[Decoded]:
        while number not in self._answers:  # they come in the order of the questions
            with _noticed():
                self._answers[self._n_answered] = self._connection.recv()
            self._n_answered += 1
        answer = self._answers.pop(number)
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def _noticed() -> Iterator[None]:
    """A block in which the other end of a pipe may turn out to be gone."""
    try:
        yield
    except (EOFError, ConnectionError):
        raise DispatcherGoneError from None


def serve(pipe: int, memory: int, parent: int, n: int) -> None:
    """In the process: have images looked at by `n` others until the pipe is closed."""
    die_with_parent(at_once=True)  # nothing is lost: only the parent writes what is to last
    if os.getppid() != parent:  # it died before the call
        return
    connection = Connection(pipe)
    pool = ProcessPool(memory, n)
    waiting: SimpleQueue[Callable[[], list[Decoded]]] = SimpleQueue()
    threading.Thread(target=_send_answers, args=(connection, waiting), daemon=True).start()
    with suppress(EOFError, ConnectionError):  # the parent is done
        while True:
            waiting.put(pool.submit(*connection.recv()))
    pool.close()


def _send_answers(connection: Connection, waiting: "SimpleQueue[Callable[[], list[Decoded]]]") -> None:
    """Send what is found, in the order of the questions."""
    while True:
        answer: list[Decoded] | Exception
        try:
            answer = waiting.get()()
        except Exception as error:  # out of memory, for example: the parent raises it
            answer = error
        with suppress(ConnectionError):  # the parent is gone
            connection.send(answer)
