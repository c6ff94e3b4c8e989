"""A clock that leaves out what a thread did not do itself."""

import threading
from itertools import count

import pytest

from fedotp._clock import leave_out, own_seconds


def test_what_is_left_out_is_left_out_in_this_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", ticks := count(100).__next__)
    assert ticks() == 100
    before = own_seconds()
    leave_out(30.0)
    assert own_seconds() - before == 1 - 30
    other: list[float] = []
    thread = threading.Thread(target=lambda: other.append(own_seconds()))
    thread.start()
    thread.join()
    leave_out(-30.0)
    assert other[0] - before == 2
