"""Runs side by side: twelve seeds at once against one, and against twelve one after the other.

The features are random, which changes no cost. A run is a round or several of FedOTP, each evaluated: on a GPU
ten clients with the shapes of the paper's few-shot setting (ViT-B/16, five local epochs), on a CPU a toy with CLIP's
prompts, and the demo, whose runs write their directories. On a GPU a run is ten rounds, what it records included; and
there are whole commands, as a user types them: `fedotp run` against `fedotp compare` with twelve seeds, tokens cached.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from bench._record import medians
from bench.experiment import lay_out
from bench.federation import _WIDE, _data
from fedotp.clip import CLIP, CONFIGS
from fedotp.config import load_config
from fedotp.federation import FederatedData, RoundSettings, Settings, Simulator
from fedotp.federation.testing import Predictions
from fedotp.federation.together import Together
from fedotp.methods import FedOTP, Precision, Task
from fedotp.runs.many import by_method, run_many

_SEEDS, _ROUNDS = 12, 1


def cannot_run() -> str | None:
    return None


def run() -> dict[str, float]:
    if torch.cuda.is_available():
        clip = CLIP.random(CONFIGS["ViT-B/16"]).to("cuda")
        figures: dict[str, float] = {}
        cases: tuple[tuple[int, Precision], ...] = ((37, "bfloat16"), (10, "bfloat16"))
        for n_classes, precision in cases:
            data = _data(clip.config, 10, 59, n_classes=n_classes, n_test=367, device="cuda")
            name = f"ViT-B/16, {n_classes} classes, {precision}"
            figures |= _ratios(name, _seeds(clip, data, n_classes, local_epochs=5, precision=precision))
            print(*(f"{key} {value:.3g}" for key, value in figures.items()), sep="\n", flush=True)
        return figures | _commands()
    clip = CLIP.random(_WIDE)
    data = _data(clip.config, 10, 32, n_classes=10, n_test=10)
    return _ratios("a toy, 10 clients", _seeds(clip, data, 10, local_epochs=2)) | _ratios("the demo", _demo())


def _ratios(name: str, candidates: dict[str, Callable[[], object]]) -> dict[str, float]:
    seconds = medians(candidates, repeats=1 if torch.cuda.is_available() else 3)
    one, together, in_turn = (seconds[key] for key in ("one", "together", "in turn"))
    return {
        f"{name}: one run, seconds": one,
        f"{name}: {_SEEDS} seeds together / one": together / one,
        f"{name}: {_SEEDS} seeds one after the other / together": in_turn / together,
    }


def _seeds(
    clip: CLIP, data: FederatedData, n_classes: int, *, local_epochs: int, precision: Precision = "float32"
) -> dict[str, Callable[[], object]]:
    """Federations that differ in their seed."""
    rounds = RoundSettings(local_epochs=local_epochs)
    classes = tuple(f"thing {k}" for k in range(n_classes))
    settings = Settings(rounds)
    settings = replace(settings, compute=replace(settings.compute, precision=precision))

    def made(n: int) -> list[Simulator]:
        """Anew each time: what a GPU records once per run is part of it."""
        return [
            Simulator(FedOTP(), Task(clip, classes, seed=seed), data, replace(settings, seed=seed)) for seed in range(n)
        ]

    n_rounds = 10 if torch.cuda.is_available() else _ROUNDS
    work = partial(_few_rounds, n_rounds)
    return {
        "one": lambda: work(made(1)[0]),
        "together": lambda: list(Together().go([(one, partial(work, one)) for one in made(_SEEDS)])),
        "in turn": lambda: [work(one) for one in made(_SEEDS)],
    }


def _few_rounds(n_rounds: int, simulator: Simulator) -> list[Predictions]:
    """A prediction ends on the CPU: what was begun is done."""
    predictions = []
    for _ in range(n_rounds):
        simulator.run_round()
        predictions.append(simulator.predict())
    return predictions


def _commands() -> dict[str, float]:
    """Whole commands, bfloat16, 37 classes; the first encodes, and is not counted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(folder, cuda=True)
        command = [sys.executable, "-m", "fedotp"]
        options = [str(folder / "experiment.toml"), "--quiet"]
        options += [word for key in ("data", "compute") for word in ("--set", f"{key}.precision=bfloat16")]

        def seconds(out: str, *words: str) -> float:
            start = time.perf_counter()
            subprocess.run([*command, *words, *options, "--out", folder / out], stdout=subprocess.DEVNULL, check=True)
            return time.perf_counter() - start

        seconds("first", "run")
        one = [seconds(f"run {number}", "run") for number in range(3)]
        seeds = ("compare", "--methods", "fedotp", "--seeds", f"0..{_SEEDS - 1}")
        many = [seconds(f"compare {number}", *seeds) for number in range(3)]
    return {
        "whole commands: fedotp run, seconds": statistics.median(one),
        f"whole commands: fedotp compare, {_SEEDS} seeds, seconds": statistics.median(many),
        f"whole commands: {_SEEDS} seeds / one": statistics.median(many) / statistics.median(one),
    }


def _demo() -> dict[str, Callable[[], object]]:
    """The demo's runs, with all that they write."""
    config = load_config("demo").override([f"federation.rounds={_ROUNDS}"])
    trials = by_method(config, ["fedotp"], range(_SEEDS))

    def compare(*groups: slice) -> Callable[[], None]:
        def do() -> None:
            folder = Path(tempfile.mkdtemp())
            for group in groups:
                run_many(trials[group], folder)
            shutil.rmtree(folder)

        return do

    return {
        "one": compare(slice(1)),
        "together": compare(slice(_SEEDS)),
        "in turn": compare(*(slice(seed, seed + 1) for seed in range(_SEEDS))),
    }
