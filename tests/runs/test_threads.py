"""`compute.threads`: as many as asked for, by default no more than gain; a run keeps the number it began with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from toy_run import make_config

import fedotp
from fedotp.clip import CLIP, CONFIGS, load
from fedotp.federation import ComputeSettings, RoundReport, n_threads
from fedotp.methods import Task
from fedotp.runs.many import by_method, run_many
from fedotp.runs.watch import Observer


@pytest.fixture
def three() -> Iterator[int]:
    """PyTorch has three threads, its default on a machine of three cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    torch.set_num_threads(before)


class Watching(Observer):
    """Notes how many threads compute a round; ends the run after round `end`, as a kill does."""

    def __init__(self, end: int = 100) -> None:
        self.threads: list[int] = []
        self.end = end

    def on_images(self, n: int) -> None:
        self.threads.append(torch.get_num_threads())

    def on_round(self, report: RoundReport) -> None:
        if report.round == self.end:
            raise KeyboardInterrupt


def test_a_small_tower_computes_with_one_thread_a_wide_one_with_all(three: int) -> None:
    small, wide = load("mini"), CLIP.random(CONFIGS["RN50"])
    assert n_threads(ComputeSettings(), Task(small, ("cat", "dog"))) == 1
    assert n_threads(ComputeSettings(), Task(wide, ("cat", "dog"))) == three
    assert n_threads(ComputeSettings(threads=2), Task(wide, ("cat", "dog"))) == 2


@pytest.mark.parametrize(("wanted", "expected"), [(0, 1), (2, 2)])
def test_a_run_takes_as_many_threads_as_it_says_also_when_resumed_and_gives_them_back(
    wanted: int, expected: int, three: int, inputs: Path, tmp_path: Path
) -> None:
    seen, rest = Watching(end=1), Watching()
    with pytest.raises(KeyboardInterrupt):
        fedotp.run(make_config(inputs, compute={"threads": wanted}), tmp_path / "run", observer=seen)
    assert torch.get_num_threads() == three
    torch.set_num_threads(1)  # another machine
    done = fedotp.resume(tmp_path / "run", observer=rest)
    assert {*seen.threads} == {*rest.threads} == {expected}
    assert (done.manifest["threads"], done.manifest["device"]) == (expected, f"cpu, {expected} threads")


def test_runs_side_by_side_have_a_core_each_of_those_asked_for(three: int, inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, compute={"threads": 2, "group_size": 0})
    for outcome in run_many(by_method(config, ["fedotp"], [0, 1]), tmp_path):
        assert not outcome.error
        assert outcome.directory.manifest["threads"] == 2
    assert torch.get_num_threads() == three
