"""How processes end: Ctrl-C and a scheduler's SIGTERM end a run after its round, a second one at once; processes that a
run starts end with it.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Interrupt:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.wanted = False


@contextmanager
def listen(on_interrupt: Callable[[], object]) -> Iterator[Interrupt]:
    """Catch SIGINT and SIGTERM within the block; outside the main thread, where Python cannot, catch nothing."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        if interrupt.wanted:
            raise KeyboardInterrupt
        interrupt.wanted = True
        on_interrupt()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_at_once(status: int) -> None:
    """Let the next signal end this process, which is about to exit, with `status` and without a traceback."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os._exit(status))


def die_with_parent(*, at_once: bool = False) -> None:
    """Have the kernel end this process when its parent is gone, however that ended; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL if at_once else signal.SIGTERM)
