"""A decoding process, seen from the one that started it; `_worker` is what it does."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import fedotp
from fedotp._images import room_for
from fedotp.data.store._crops import Looked, Request

_START = (
    "import sys; n = int(sys.argv[2]); facts, sys.path[:] = sys.argv[3 : 3 + n], sys.argv[3 + n :]; "
    "from importlib import import_module; import_module(sys.argv[1]).serve(*map(int, facts))"
)
# A decoded picture goes back to the system when it is freed, and the next one is made of new pages, which takes a fifth
# of the time and more where many processes ask for pages at once. These have glibc keep 64 MiB, and pictures in them.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}


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
        """Start the process; if that is impossible, asking it will tell."""
        self._is_up = False
        self._process, self._connection = start_process("fedotp.data.store._worker", self._memory)

    def ask(self, requests: Sequence[Request]) -> list[Looked]:
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


def _answer(connection: Connection) -> list[Looked] | Exception:
    """What it says in the end; before, it may ask for room to decode a large picture."""
    answer: int | list[Looked] | Exception = connection.recv()
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
