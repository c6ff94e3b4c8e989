"""Recordings of GPU work: what cannot be recorded leaves no trace in the process."""

import gc

import pytest
import torch

from fedotp._graphs import Recorded, Recordings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_a_failed_recording_leaves_generator_stream_and_memory_as_they_were() -> None:
    weights = torch.ones(1000, device="cuda")
    torch.cuda.manual_seed(3)
    expected = torch.rand(5, device="cuda")
    torch.cuda.manual_seed(3)
    stream, recordings = torch.cuda.current_stream(), Recordings[torch.Tensor]()
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved()
    for attempt in range(3):
        assert recordings.get(attempt, lambda: weights * float(weights.sum().item())) is None
    assert torch.cuda.current_stream() == stream
    torch.testing.assert_close(torch.rand(5, device="cuda"), expected)
    gc.collect()  # the errors' tracebacks
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved + (2 << 20)


def test_recordings_and_random_numbers_work_after_a_failed_one() -> None:
    source, recordings = torch.arange(4.0, device="cuda"), Recordings[torch.Tensor]()
    assert recordings.get("waits", lambda: source[source > 1]) is None
    doubled = recordings.get("doubles", lambda: 2 * source)
    assert doubled is not None
    source += 1
    torch.testing.assert_close(doubled(), torch.tensor([2.0, 4, 6, 8], device="cuda"))
    noisy = Recorded(lambda: torch.rand(3, device="cuda"))
    assert not torch.equal(noisy().clone(), noisy().clone())


def test_failed_and_sound_recordings_in_turn_leave_random_numbers_usable() -> None:
    source, recordings = torch.arange(4.0, device="cuda"), Recordings[torch.Tensor]()
    for n in range(3):
        made = recordings.get(n, lambda n=n: n * source)  # type: ignore[misc]
        assert made is not None
        assert recordings.get(f"waits {n}", lambda: source[source > 1]) is None
        torch.rand(3, device="cuda")
        torch.testing.assert_close(made(), n * source)


def test_graphs_that_python_deletes_during_a_recording_do_not_end_it() -> None:
    """A cycle keeps the older graph until the garbage collector finds it, which may be in the middle of a recording."""
    source = torch.ones(3, device="cuda")

    def work() -> torch.Tensor:
        for _ in range(2000):  # enough objects for the collector to run, if it may
            [[]].append([])
        return source + 1

    class Cycle:
        def __init__(self) -> None:
            self.graph, self.own = Recorded(lambda: source * 2), self

    thresholds = gc.get_threshold()
    gc.set_threshold(10, 1, 1)
    try:
        for _ in range(5):
            Cycle()
            assert Recordings[torch.Tensor]().get("adds", work) is not None
    finally:
        gc.set_threshold(*thresholds)
    assert gc.isenabled()


def test_an_error_that_is_not_the_gpus_is_raised_and_leaves_no_trace_either() -> None:
    calls = []

    def work() -> torch.Tensor:
        calls.append(1)
        ones = torch.ones(2, device="cuda")
        if len(calls) == 3:  # after two runs to warm up: in the recording
            raise KeyError("no such prompt")
        return ones

    with pytest.raises(KeyError, match="no such prompt"):
        Recorded(work)
    torch.rand(2, device="cuda")
