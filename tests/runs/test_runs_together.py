"""Runs side by side: each directory is that of the run alone."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_run import Killed, found, make_config

import fedotp
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation.clients import LocalTrainer
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import ManyObserver, Outcome, Trial, Update, by_grid, by_method, run_many
from fedotp.runs.many import _together as together_module
from fedotp.runs.many._together import side_by_side
from fedotp.runs.one import Preparation

EXACT = {"compute": {"precision": "float64"}}
NOT_COMPARED = {"seconds", "command", "started", "sha256"}


def numbers(value: Any) -> Any:
    """Without times and what depends on them; floats as NumPy compares them."""
    if isinstance(value, dict):
        return {key: numbers(inner) for key, inner in value.items() if key not in NOT_COMPARED}
    return [numbers(inner) for inner in value] if isinstance(value, list) else value


def contents(run: RunDirectory) -> dict[str, Any]:
    """All that is in the directory of a complete run, apart from times."""
    return {
        **found(run),
        "manifest": numbers(run.manifest),
        "partition": run.path.joinpath("partition.json").read_text(),
        "files": sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*")),
    }


def assert_close(one: Any, other: Any, tolerance: float, where: str = "") -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_close(one[key], other[key], tolerance, f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for mine, theirs in zip(one, other, strict=True):
            assert_close(mine, theirs, tolerance, where)
    elif isinstance(one, float | np.ndarray):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance, err_msg=where)
    else:
        assert one == other, where


def assert_as_alone(outcomes: Sequence[Outcome], folder: Path, tolerance: float = 1e-10) -> None:
    for outcome in outcomes:
        assert not outcome.error
        expected = fedotp.run(outcome.trial.config, folder / outcome.trial.name)
        assert_close(contents(outcome.directory), contents(expected), tolerance, outcome.trial.name)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many clients were trained at once, every time."""
    sizes: list[int] = []
    plain = LocalTrainer.train

    def compute(self, work, *args):  # type: ignore[no-untyped-def]
        sizes.append(len(work.clients))
        return plain(self, work, *args)

    monkeypatch.setattr(LocalTrainer, "train", compute)
    return sizes


@pytest.mark.parametrize("method", ["zeroshot", "fedotp", "pfedmoap"])  # all: tests/federation/test_together.py
def test_seeds_of_a_method(method: str, inputs: Path, tmp_path: Path, trained: list[int]) -> None:
    config = make_config(inputs, federation={"dropout": 0.2}, **EXACT)
    outcomes = run_many(by_method(config, [method], [0, 1]), tmp_path / "together")
    assert max(trained) > (0 if method == "zeroshot" else 5)  # more than there are clients in a run
    assert_as_alone(outcomes, tmp_path / "alone")


@pytest.mark.parametrize("methods", [["fedotp"], ["fedotp", "coop", "zeroshot"]])
def test_data_are_read_once(methods: list[str], inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all runs of a comparison in one process, whether they go side by side or one after the other."""
    made: list[Config] = []
    plain = Preparation.__init__

    def counted(self, config, *args):  # type: ignore[no-untyped-def]
        made.append(config)
        plain(self, config, *args)

    monkeypatch.setattr(Preparation, "__init__", counted)
    trials = by_method(make_config(inputs, federation={"rounds": 1}), methods, [0, 1])
    outcomes = run_many(trials, tmp_path)
    assert [outcome.error for outcome in outcomes] == [""] * len(trials)
    assert all(outcome.directory.is_complete for outcome in outcomes)
    assert len(made) == 1


GRIDS = {
    "splits": ["partition.seed=0,1"],
    "steps of clients and server": ["server.name=average,adam", "optimizer.lr=0.05,0.01"],
    "who takes part": ["federation.participation=1.0,0.5", "federation.holdout_clients=0,2"],
    "who is left out": ["federation.holdout_clients=0", "federation.holdout=client-0,client-3"],
    "how long and how often": ["federation.rounds=2,4", "evaluation.every=0,1"],
    "how many clients": ["partition.n_clients=3,5"],
}


@pytest.mark.parametrize("case", GRIDS)
def test_what_may_differ(case: str, inputs: Path, tmp_path: Path) -> None:
    trials = by_grid(make_config(inputs, **EXACT), GRIDS[case], [0])
    assert len(side_by_side([(trial, tmp_path) for trial in trials])) == 1
    assert_as_alone(run_many(trials, tmp_path / "together"), tmp_path / "alone")


@pytest.mark.parametrize(
    "grid",
    [
        ["method.reg=0.1,0.2"],
        ["method.rule=classical,average"],
        ["federation.local_epochs=1,2"],
        ["federation.batch_size=3,4"],
        ["optimizer.momentum=0.5,0.9"],
        ["prompt.n_ctx=2,3"],
        ["data.crops=0,2"],
        ["method.mass=0.5,1.0"],
        ["compute.group_size=1", "optimizer.lr=0.05,0.01"],  # how many clients are trained at once is a setting
    ],
)
def test_what_may_not(grid: list[str], inputs: Path, tmp_path: Path) -> None:
    trials = by_grid(make_config(inputs), grid, [0])
    groups = side_by_side([(trial, tmp_path) for trial in trials])
    assert [len(group) for group in groups] == [1] * len(trials)


def test_groups_keep_processes_busy(inputs: Path, tmp_path: Path) -> None:
    work = [(trial, tmp_path) for trial in by_method(make_config(inputs), ["coop", "promptfl"], range(6))]
    for jobs, sizes in {1: [6, 6], 2: [6, 6], 3: [4, 2, 4, 2], 12: [1] * 12, 20: [1] * 12}.items():
        groups = side_by_side(work, jobs)
        assert [len(group) for group in groups] == sizes
        assert [item for group in groups for item in group] == work


def test_as_many_as_fit(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: list[int]) -> None:
    monkeypatch.setattr("fedotp.federation._hardware._CPU_GROUP", 7)
    trials = by_method(make_config(inputs, **EXACT), ["promptfl"], range(5))
    running: list[int] = []

    class Count(ManyObserver):
        def on_update(self, update: Update) -> None:
            running.append(sum(RunDirectory(tmp_path / "together" / trial.name).is_running for trial in trials))

    outcomes = run_many(trials, tmp_path / "together", observer=Count())
    assert max(running) == 2  # three clients a round each
    assert max(trained) == 6
    assert_as_alone(outcomes, tmp_path / "alone")


def diverging(config: Config) -> list[Trial]:
    """The second one does."""
    trials = by_grid(config.override(["optimizer.weight_decay=1e6"]), ["optimizer.lr=1e-7,1e6,2e-7"], [0])
    assert len(side_by_side([(trial, Path()) for trial in trials])) == 1
    return trials


def test_one_that_diverges_is_reported_alone(inputs: Path, tmp_path: Path) -> None:
    trials = diverging(make_config(inputs, federation={"rounds": 6}))
    first, failed, last = run_many(trials, tmp_path / "together")
    assert "diverged in round" in failed.error
    assert not failed.directory.is_running
    assert_as_alone([first, last], tmp_path / "alone", tolerance=1e-4)
    with pytest.raises(FedotpError, match="diverged in round"):
        fedotp.run(trials[1].config, tmp_path / "alone" / "failed")
    assert [record["round"] for record in failed.directory.metrics("round")] == [
        record["round"] for record in RunDirectory(tmp_path / "alone" / "failed").metrics("round")
    ]


def test_one_that_cannot_begin_is_reported_alone(inputs: Path, tmp_path: Path) -> None:
    trials = by_grid(make_config(inputs, **EXACT), ["partition.min_size=1,1000", "federation.holdout_clients=0,9"], [0])
    outcomes = run_many(trials, tmp_path / "together")
    assert ["holdout_clients = 9" in outcome.error for outcome in outcomes] == [False, True, False, False]
    assert ["min_size" in outcome.error for outcome in outcomes] == [False, False, True, True]
    assert_as_alone(outcomes[:1], tmp_path / "alone")


class Deadly(ManyObserver):
    def __init__(self, at: int) -> None:
        self.left = at

    def on_update(self, update: Update) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.left -= 1
        if not self.left:
            raise Killed


@pytest.mark.parametrize("at", [1, 9])
def test_killed_and_resumed(at: int, inputs: Path, tmp_path: Path) -> None:
    """Whatever round each of them is in then."""
    grid = ["method.mass=0.5,0.9", "partition.seed=0,1"]
    config = make_config(inputs, optimizer={"reset": False}, server={"name": "momentum"}, **EXACT)
    trials = by_grid(config, grid, [0])
    before = threading.active_count()
    with pytest.raises(Killed):
        run_many(trials, tmp_path / "together", observer=Deadly(at))
    assert threading.active_count() == before
    begun = [RunDirectory(tmp_path / "together" / trial.name) for trial in trials]
    assert not any(run.is_running for run in begun)
    if at == 9:  # one of them is ahead
        fedotp.resume(begun[1].path)
    assert_as_alone(run_many(trials, tmp_path / "together"), tmp_path / "alone")


class Interrupting(ManyObserver):
    def __init__(self, times: int) -> None:
        self.times = times
        self.interrupts = 0
        self.names: list[str] = []

    def on_update(self, update: Update) -> None:
        if update.round == 1 and self.times:
            self.times -= 1
            os.kill(os.getpid(), signal.SIGINT)

    def on_interrupt(self) -> None:
        self.interrupts += 1

    def on_outcome(self, outcome: Outcome) -> None:
        self.names.append(outcome.trial.name)


def test_ctrl_c_ends_all_after_their_rounds(inputs: Path, tmp_path: Path) -> None:
    trials = by_method(make_config(inputs, **EXACT), ["fedotp", "promptfl"], [0, 1, 2])
    observer = Interrupting(1)
    outcomes = run_many(trials, tmp_path / "together", observer=observer)
    assert observer.interrupts == 1
    assert observer.names == [trial.name for trial in trials[:3]]  # the other method was not begun
    assert not any(outcome.error or outcome.directory.is_complete for outcome in outcomes)
    for outcome in outcomes[:3]:
        assert [record["round"] for record in outcome.directory.metrics("round")][:1] == [1]
        assert len([*outcome.directory.metrics("round")]) < 3
    assert_as_alone(run_many(trials, tmp_path / "together"), tmp_path / "alone")


def test_runs_that_others_are_at_are_left_to_them(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def taken(*_: object, alone: bool) -> Iterator[None]:
        raise FedotpError("it is locked by another process")
        yield

    monkeypatch.setattr(together_module, "opened", taken)
    outcomes = run_many(by_method(make_config(inputs), ["fedotp"], [0, 1]), tmp_path)
    assert ["by another process" in outcome.error for outcome in outcomes] == [True, True]
