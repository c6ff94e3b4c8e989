"""A decoding process: it looks at the images that come through a pipe and puts their crops into shared memory.

It ends when the pipe is closed, and with the process that started it, however that ended. It has no part in Ctrl-C.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection

from fedotp._images import MAX_PIXELS, share_room
from fedotp._processes import die_with_parent
from fedotp.data.store._crops import Looked, Request, Rows, look

_SMALL = MAX_PIXELS // 64  # pixels that are decoded without asking: many processes may do so at once


def serve(pipe: int, memory: int, parent: int) -> None:
    """Answer requests from the descriptor `pipe` with what was found; crops go to `memory`."""
    die_with_parent(at_once=True)  # nothing is lost: only the parent writes what is to last
    if os.getppid() != parent:  # it died before the kernel was told
        return
    warnings.simplefilter("ignore")  # odd metadata does no harm, the limits are our own
    connection = Connection(pipe)
    share_room(_ParentsRoom(connection))
    rows = Rows(memory)
    with suppress(EOFError, ConnectionError):  # the parent is done
        connection.send(None)  # ready
        while True:
            connection.send(_answer(connection.recv(), rows))


def _answer(requests: Sequence[Request], rows: Rows) -> list[Looked] | Exception:
    try:
        return [look(request, rows) for request in requests]
    except (EOFError, ConnectionError):
        raise
    except Exception as error:  # out of memory, for example: it is the parent that tells
        return error


class _ParentsRoom:
    """The parent lends room for a large picture: a number of pixels asks, None gives back."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @contextmanager
    def taken(self, n: int) -> Iterator[None]:
        """Take room for `n` pixels while the block lasts."""
        if n <= _SMALL:
            yield
            return
        self._connection.send(n)
        self._connection.recv()
        try:
            yield
        finally:
            self._connection.send(None)
