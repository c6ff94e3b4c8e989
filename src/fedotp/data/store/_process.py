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
    "import sys; sys.path[:] = sys.argv[5:]; "
    "from fedotp.data.store._worker import serve; serve(*map(int, sys.argv[1:5]))"
)


class GoneError(Exception):
    """The process ended by itself; `at_work` if it was up by then."""

    def __init__(self, words: str, *, at_work: bool) -> None:
        super().__init__(words)
        self.at_work = at_work


class DecodingProcess:
    """A process that looks at images and writes their crops to the memory behind a descriptor.

    It is not forked, because this one may have threads and a GPU, and not started by `multiprocessing`, which would
    have it import the program that runs here.
    """

    def __init__(self, memory: int, row_bytes: int) -> None:
        self._memory, self._row_bytes = memory, row_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._is_up = False
        self._cannot_start = False

    def start(self) -> None:
        """Start the process; if that is impossible, asking it will tell."""
        self._connection, theirs = Pipe()
        self._is_up = False
        facts = (theirs.fileno(), self._memory, self._row_bytes, os.getpid())
        paths = [*sys.path, str(Path(fedotp.__file__).parents[1])]
        with theirs, suppress(OSError):  # no memory, no descriptors left
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, *map(str, facts), *paths],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=facts[:2],
                start_new_session=True,  # Ctrl-C is for this process, which stops the others
            )

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

    def stop(self) -> None:
        """End the process now."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
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
