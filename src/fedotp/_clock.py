"""Seconds of one's own: what a thread waits for others' work does not count."""

import threading
import time


class _Waited(threading.local):
    seconds = 0.0


_waited = _Waited()


def own_seconds() -> float:
    """A clock to measure what this thread's work costs."""
    return time.perf_counter() - _waited.seconds


def leave_out(seconds: float) -> None:
    """Take time off this thread's clock that was spent waiting, or on somebody else's behalf."""
    _waited.seconds += seconds
