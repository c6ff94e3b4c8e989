"""One process between this one and the decoding processes, which hands out images a batch at a time.

A dozen threads that hand images out a few at a time, and take in what was found, would keep the interpreter's lock from
the thread that drives the image tower. In a process of their own they are in nobody's way.
"""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue

from fedotp._processes import die_with_parent
from fedotp.data.store._crew import Crew
from fedotp.data.store._crops import Looked, Request
from fedotp.data.store._process import start_process

_PATIENCE = 5.0  # seconds for a picture that is being decoded when nobody needs it any more


class ForemanGoneError(Exception):
    """The process ended by itself, or never was."""


class Foreman:
    """The process, seen from the one that started it, and `n` decoding processes of its own."""

    def __init__(self, memory: int, n: int) -> None:
        """Start it; if that is impossible, the first answer will tell. Crops go to the descriptor `memory`."""
        self._process, self._connection = start_process("fedotp.data.store._foreman", memory, n)
        self._n_asked = self._n_answered = 0
        self._answers: dict[int, list[Looked] | Exception] = {}

    @property
    def process(self) -> "subprocess.Popen[bytes] | None":
        """The process itself, if it could be started."""
        return self._process

    def submit(self, requests: Sequence[Request], most_at_a_time: int) -> Callable[[], list[Looked]]:
        """As `Crew.submit`; the answer, or this call already, is `ForemanGoneError` where the process is gone."""
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
                self._process.wait(_PATIENCE)
            self._process.kill()  # the others end with it
            self._process.wait()

    def _answer(self, number: int) -> list[Looked]:
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
        raise ForemanGoneError from None


def serve(pipe: int, memory: int, parent: int, n: int) -> None:
    """In the process: have images looked at by `n` others until the pipe is closed."""
    die_with_parent(at_once=True)  # nothing is lost: only the parent writes what is to last
    if os.getppid() != parent:  # it died before the kernel was told
        return
    connection = Connection(pipe)
    crew = Crew(memory, n)
    waiting: SimpleQueue[Callable[[], list[Looked]]] = SimpleQueue()
    threading.Thread(target=_tell, args=(connection, waiting), daemon=True).start()
    with suppress(EOFError, ConnectionError):  # the parent is done
        while True:
            waiting.put(crew.submit(*connection.recv()))
    crew.close()


def _tell(connection: Connection, waiting: "SimpleQueue[Callable[[], list[Looked]]]") -> None:
    """Send what is found, in the order of the questions."""
    while True:
        answer: list[Looked] | Exception
        try:
            answer = waiting.get()()
        except Exception as error:  # out of memory, for example: it is the parent that tells
            answer = error
        with suppress(ConnectionError):  # the parent is gone
            connection.send(answer)
