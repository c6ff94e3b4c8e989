"""Train federations on half of the classes, and test them on all of these and on the other half.

    python -m recipes.unseen.study --device cuda                       # everything, into docs/results/unseen.csv
    python -m recipes.unseen.study --splits 1 --seeds 1 --data emoji   # a taste

Only what comes with fedotp is needed. Every line of the file is one federation after some rounds, at one position of
the dial; what is in the file already is not done again.
"""

import argparse
import csv
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from bench._record import commit, machine
from fedotp.federation import OptimizerSettings, Predictor, RoundSettings, Settings, Simulator, Together
from fedotp.methods import METHODS, Dial, FedOTP, Method
from recipes.unseen.measure import measure_base, measure_novel, scores
from recipes.unseen.world import Division, Material, Scheme, deal

OUT = Path("docs/results/unseen.csv")
ROUNDS = (0, 1, 3, 10, 30)
FEW: tuple[Dial, ...] = (0.0, 0.5, 1.0)
GRID: tuple[Dial, ...] = (*(i / 10 for i in range(11)), "confidence")
MASSES = (0.5, 0.8, 1.0)
CLIENTS = {"cifar10-mini": 10, "emoji": 8}
MEASURED = ("local", "base", "novel", "other", "masked", "claimed")
KEYS = ("data", "scheme", "method", "lr", "split", "seed", "round", "dial", "mass")


@dataclass(frozen=True)
class Trial:
    """A method with its options, as a line of the file names it, and a learning rate."""

    label: str
    method: Method
    lr: float


def trials(scheme: Scheme) -> Iterator[Trial]:
    """What is trained: everything at three learning rates where clients have two classes, a core elsewhere."""
    fedotp = FedOTP()
    core: dict[str, Method] = {"fedotp": fedotp, "promptfl": METHODS["promptfl"](), "coop": METHODS["coop"]()}
    yield Trial("zeroshot", METHODS["zeroshot"](), 0.001)
    for (label, method), lr in itertools.product(core.items(), (0.001, 0.01, 0.1)):
        yield Trial(label, method, lr)
    ablations: dict[str, Method] = {
        "fedotp:n_private=0": replace(fedotp, n_private=0),
        "fedotp:n_shared=0": replace(fedotp, n_shared=0),
        "fedotp:rule=average": replace(fedotp, rule="average"),
        "fedotp:mass=0.5": replace(fedotp, mass=0.5),
        "fedotp:mass=1": replace(fedotp, mass=1.0),
        "fedotp:dial=0.2": replace(fedotp, dial=0.2),
        "fedotp:dial=0.8": replace(fedotp, dial=0.8),
    }
    if scheme == "pairs":
        for (label, method), lr in itertools.product(ablations.items(), (0.01, 0.1)):
            yield Trial(label, method, lr)


def study(material: Material, scheme: Scheme, split: int, seeds: list[int]) -> Iterator[dict[str, object]]:
    """All lines of one division of the classes, dealt in one way."""
    division = Division(material, split)
    base, novel = division.images(division.base), division.images(division.novel)
    federations = []
    for seed in seeds:
        dealt = deal(division, scheme, CLIENTS[material.name], seed)
        for trial in trials(scheme):
            settings = Settings(
                RoundSettings(rounds=max(ROUNDS), local_epochs=1), OptimizerSettings(lr=trial.lr), seed=seed
            )
            simulator = Simulator(trial.method, division.task(division.base, seed), dealt.data, settings)
            federations.append((trial, seed, simulator, dealt.shares))
    for before, after in zip((0, *ROUNDS), ROUNDS, strict=False):
        _go([simulator for _, _, simulator, _ in federations], after - before)
        for trial, seed, simulator, shares in federations:
            if after and not simulator.learns:
                continue
            predictor = simulator.predictor(np.arange(len(simulator.data)))
            elsewhere = predictor.with_task(division.task(division.novel, seed))
            for dial, mass in _positions(trial, after == max(ROUNDS)):
                found = measure_base(scores(_turned(predictor, dial, mass), base[0]), base[1], shares)
                found |= measure_novel(scores(_turned(elsewhere, dial, mass), novel[0]), novel[1])
                where = (material.name, scheme, trial.label, trial.lr, split, seed, after, dial, mass)
                yield dict(zip(KEYS, where, strict=True)) | {name: round(value, 5) for name, value in found.items()}


def _go(simulators: list[Simulator], n_rounds: int) -> None:
    """So many rounds of all, side by side."""

    def rounds(simulator: Simulator) -> Callable[[], None]:
        def work() -> None:
            for _ in range(n_rounds):
                simulator.run_round()

        return work

    learning = [simulator for simulator in simulators if simulator.learns and n_rounds]
    for _, error in Together().go([(simulator, rounds(simulator)) for simulator in learning]) if learning else ():
        if error is not None:
            raise error


def _positions(trial: Trial, last: bool) -> Iterator[tuple[Dial | str, float | str]]:
    """Where the dial and the mass stand in the measurements of a method; "" is as trained."""
    yield "", ""
    method = trial.method
    if isinstance(method, FedOTP) and min(method.n_shared, method.n_private):
        yield from ((dial, "") for dial in (GRID if last else FEW))
        if last and trial.label == "fedotp":
            yield from (("", mass) for mass in MASSES)


def _turned(predictor: Predictor, dial: Dial | str, mass: float | str) -> Predictor:
    predictor = predictor if dial == "" else predictor.with_dial(dial)  # type: ignore[arg-type]
    return predictor if mass == "" else predictor.with_mass(float(mass))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", default=",".join(CLIENTS), help="names of data sets in the package")
    parser.add_argument("--schemes", default="pairs,dirichlet,iid")
    parser.add_argument("--splits", type=int, default=6, help="divisions of the classes")
    parser.add_argument("--seeds", type=int, default=2, help="of prompts, batches and who gets which image")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if options.out.is_file():
        with options.out.open() as file:
            done = {(row["data"], row["scheme"], row["split"]) for row in csv.DictReader(file)}
    for name in options.data.split(","):
        material = Material.of(name, torch.device(options.device))
        for split, scheme in itertools.product(range(options.splits), options.schemes.split(",")):
            if (name, scheme, str(split)) in done:
                continue
            start = time.perf_counter()
            lines = list(study(material, scheme, split, list(range(options.seeds))))
            _append(options.out, lines)
            print(f"{name}, {scheme}, split {split}: {time.perf_counter() - start:.0f} s", flush=True)
    record = {"command": "python -m recipes.unseen.study " + " ".join(sys.argv[1:]), "commit": commit()}
    options.out.with_suffix(".json").write_text(json.dumps({**record, "machine": machine()}, indent=2) + "\n")


def _append(path: Path, lines: list[dict[str, object]]) -> None:
    """All lines of a division at once: what is there is complete."""
    new = not path.is_file()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, (*KEYS, *MEASURED), lineterminator="\n", restval="")
        if new:
            writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
