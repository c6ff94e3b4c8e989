"""Whole runs in a blink: coloured squares on disk, a random tower in a file."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedotp
from coloured_squares import draw_day_and_night
from fedotp.clip import CLIP, TINY, save
from fedotp.federation import Checkpoint, RoundReport
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import prepare
from fedotp.runs.one._run import make_simulator
from fedotp.runs.watch import Observer

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}


class Killed(BaseException):
    """Nothing may catch it, as nothing catches SIGKILL."""


class Stops(Observer):
    """Ends the run after a round, as a second Ctrl-C does, or as another error."""

    def __init__(self, round_: int = 1, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.round, self.error = round_, error

    def on_round(self, report: RoundReport) -> None:
        if report.round == self.round:
            raise self.error(f"in round {self.round}")


def make_inputs(folder: Path, colours: dict[str, tuple[int, int, int]] = COLOURS, n: int = 6) -> Path:
    """A backbone and a class for each colour x 2 domains x n images."""
    save(CLIP.random(TINY), folder / "tiny.safetensors")
    draw_day_and_night(folder / "data", colours, n)
    return folder


def make_config(inputs: Path, **sections: Any) -> fedotp.Config:
    """Four clients of uneven size, one of them held out; `sections` are updated key by key."""
    tables: dict[str, Any] = {
        "data": {"dataset": str(inputs / "data"), "store": str(inputs / "store")},
        "backbone": {"name": str(inputs / "tiny.safetensors")},
        "partition": {"scheme": "dirichlet", "n_clients": 5, "alpha": 0.8},
        "prompt": {"n_ctx": 2, "std": 0.1},
        "federation": {
            "rounds": 3,
            "local_epochs": 1,
            "batch_size": 4,
            "participation": 0.7,
            "holdout_clients": 1,
            "join_epochs": 1,
        },
        "optimizer": {"lr": 0.05},
        "evaluation": {"clients": 3},
        "compute": {"device": "cpu"},
    }
    tables = copy.deepcopy(tables)
    for section, values in sections.items():
        if isinstance(values, dict):
            tables.setdefault(section, {}).update(values)
        else:
            tables[section] = values
    return fedotp.Config.from_dict(tables)


def _without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "seconds"}


def found(run: RunDirectory) -> dict[str, Any]:
    """Everything a complete run has found, without times; arrays by their names."""
    run = RunDirectory.open(run.path)
    prepared = prepare(run.config, like=run)
    simulator = make_simulator(prepared, run)
    progress = Checkpoint.read(run.checkpoint).restore(simulator)
    kept = simulator.kept.read(np.arange(len(simulator.data)), torch.device("cpu"))
    simulator.kept.close()
    parts = {
        "predictions": vars(run.predictions()),
        "server": {name: value.numpy() for name, value in simulator.server.params.items()},
        "step": {name: value.numpy() for name, value in simulator.server.step.state.items()},
        "kept": {name: value.numpy() for name, value in kept.items()},
    }
    return {
        "config": run.path.joinpath("config.toml").read_text(),
        "metrics": [_without_times(record) for record in run.metrics()],
        "summary": _without_times(run.summary),
        "progress": (progress.round, progress.bytes_up, progress.bytes_down, progress.best_round),
        **{f"{part}.{name}": value for part, arrays in parts.items() for name, value in arrays.items()},
    }


def outcome(run: RunDirectory) -> dict[str, Any]:
    """The same with arrays as bytes."""
    return {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in found(run).items()}


def assert_same_outcome(one: dict[str, Any], other: dict[str, Any], where: object = "") -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert value == other[name], f"{name} differs {where}"
