"""Train federations on half of the classes, and test them on all of these and on the other half.

    python -m recipes.unseen.study --device cuda                       # everything, into docs/results/unseen.csv
    python -m recipes.unseen.study --small --seeds 1 --data cifar10-mini   # an hour of one core
    python -m recipes.unseen.figures                                   # what docs/unseen-classes.md shows

Only what comes with fedotp is needed. Every line of the file is one federation after some rounds, at one position of
the dial. Divisions of the classes are written when they are complete; those in the file already are not done again, so
that the same command goes on where it was stopped (`--seconds` stops it in time).
"""

import argparse
import csv
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import torch
from bench._record import commit, machine
from recipes.unseen.measure import measure_base, measure_novel, scores
from recipes.unseen.world import Division, Floats, Ints, Material, Scheme, deal

from fedotp.clip import ImageFeatures
from fedotp.federation import OptimizerSettings, RoundSettings, Settings, Simulator
from fedotp.federation.testing import Predictor
from fedotp.federation.together import Together
from fedotp.methods import METHODS, Dial, FedOTP, Method, PromptSettings, Task

OUT = Path("docs/results/unseen.csv")
ROUNDS = (0, 1, 3, 10, 30)
JOBS: tuple[tuple[str, Scheme], ...] = (
    ("cifar10-mini", "pairs"),
    ("cifar10-mini", "iid"),
    ("emoji", "pairs"),
    ("cifar10-mini", "dirichlet"),
)
SMALL = 60  # test images of a class in a small study
ABLATED_AT = 0.1  # learning rate
FEW = (0.0, 1.0)
GRID = tuple(i / 10 for i in range(11))
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
    prompt: PromptSettings = field(default_factory=PromptSettings)


def trials(data: str, scheme: Scheme, *, small: bool = False) -> Iterator[Trial]:
    """What is trained: everything where clients have two classes of cifar10-mini, a core elsewhere.

    Of a `small` study there is one learning rate.
    """
    everything = (data, scheme) == JOBS[0]
    fedotp, rates = FedOTP(), (0.001, 0.01, 0.1, 1.0) if everything else (0.01, 0.1)
    rates = (ABLATED_AT,) if small else rates
    core: dict[str, Method] = {"fedotp": fedotp, "promptfl": METHODS["promptfl"](), "coop": METHODS["coop"]()}
    yield Trial("zeroshot", METHODS["zeroshot"](), rates[0])
    for (label, method), lr in itertools.product(core.items(), rates):
        yield Trial(label, method, lr)
    if not everything:
        return
    ablations: dict[str, Method] = {
        "fedotp:n_private=0": replace(fedotp, n_private=0),
        "fedotp:n_shared=0": replace(fedotp, n_shared=0),
        "fedotp:rule=average": replace(fedotp, rule="average"),
        "fedotp:dial=0.2": replace(fedotp, dial=0.2),
        "promptfolio": METHODS["promptfolio"](),
    }
    for label, method in ablations.items():
        yield Trial(label, method, ABLATED_AT)
    yield Trial("fedotp:prompt.kgcoop=8", fedotp, ABLATED_AT, PromptSettings(kgcoop=8.0))


@dataclass(frozen=True, eq=False)
class Federation:
    """One federation, and the lines it leaves."""

    where: tuple[object, ...]
    trial: Trial
    simulator: Simulator
    shares: Floats
    lines: list[dict[str, object]] = field(default_factory=list)

    def measure(self, division: Division, tests: Sequence[tuple[ImageFeatures, Ints]]) -> None:
        """Measure it as it stands, at several positions of the dial."""
        after = self.simulator.round
        predictor = self.simulator.predictor(np.arange(len(self.simulator.data)))
        both = predictor, predictor.with_task(replace(predictor.task, classes=division.names(division.novel)))
        for dial, mass in _positions(self.trial, after == max(ROUNDS)):
            base, novel = (
                scores(_turned(one, dial, mass), images) for one, (images, _) in zip(both, tests, strict=True)
            )
            found = measure_base(base, tests[0][1], self.shares) | measure_novel(novel, tests[1][1])
            named = dict(zip(KEYS, (*self.where, after, dial, mass), strict=True))
            self.lines.append(named | {name: round(value, 5) for name, value in found.items()})


def study(
    material: Material, scheme: Scheme, split: int, seeds: Sequence[int], *, small: bool = False
) -> list[dict[str, object]]:
    """All lines of one division of the classes, dealt in one way; federations train side by side."""
    division = Division(material, split)
    tests = [division.images(places) for places in (division.base, division.novel)]
    federations = []
    for seed in seeds:
        dealt = deal(division, scheme, CLIENTS[material.name], seed)
        for trial in trials(material.name, scheme, small=small):
            rounds = RoundSettings(rounds=max(ROUNDS), local_epochs=1)
            settings = Settings(rounds, OptimizerSettings(lr=trial.lr), seed=seed)
            task = Task(material.clip, division.names(division.base), trial.prompt, seed=seed)
            where = (material.name, scheme, trial.label, trial.lr, split, seed)
            simulator = Simulator(trial.method, task, dealt.data, settings)
            federations.append(Federation(where, trial, simulator, dealt.shares))
    together = Together()

    def in_turn(what: Callable[[], None]) -> None:
        """Measure where all training is done: one at a time."""
        done = Event()

        def measured() -> None:
            try:
                what()
            finally:
                done.set()

        together.call(measured)
        done.wait()

    def live(federation: Federation) -> None:
        for number in range(max(ROUNDS) + 1):
            if number:
                federation.simulator.run_round()
            if number in ROUNDS:
                in_turn(partial(federation.measure, division, tests))
            if not federation.simulator.learns:
                return

    for _, error in together.go([(each.simulator, partial(live, each)) for each in federations]):
        if error is not None:
            raise error
    return [line for federation in federations for line in federation.lines]


def _positions(trial: Trial, last: bool) -> Iterator[tuple[Dial | str, float | str]]:
    """Where the dial and the mass stand in the measurements of a method; "" is as trained."""
    yield "", ""
    if "dial" in trial.method.adjustable:
        yield from ((dial, "") for dial in (GRID if last else FEW))
        if last and isinstance(trial.method, FedOTP):
            yield "confidence", ""
        if last and trial.label == "fedotp":
            yield from (("", mass) for mass in MASSES)


def _turned(predictor: Predictor, dial: Dial | str, mass: float | str) -> Predictor:
    predictor = predictor if dial == "" else predictor.with_dial(dial)  # type: ignore[arg-type]
    return predictor if mass == "" else predictor.with_mass(float(mass))


def main() -> None:
    """Do what is not done yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", default=",".join(CLIENTS), help="names of data sets in the package")
    parser.add_argument("--splits", type=int, default=6, help="divisions of the classes")
    parser.add_argument("--seeds", type=int, default=2, help="of prompts, batches and who gets which image")
    parser.add_argument("--small", action="store_true", help="one learning rate, 60 test images a class: for a CPU")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing new after so many seconds")
    options = parser.parse_args()
    begun = time.perf_counter()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if options.out.is_file():
        with options.out.open() as file:
            done = {(row["data"], row["scheme"], row["split"]) for row in csv.DictReader(file)}
    n_test = SMALL if options.small else None
    materials = {name: Material.of(name, torch.device(options.device), n_test) for name in options.data.split(",")}
    for (name, scheme), split in itertools.product(JOBS[:1] if options.small else JOBS, range(options.splits)):
        start = time.perf_counter()
        if name not in materials or (name, scheme, str(split)) in done or start - begun > options.seconds:
            continue
        _append(options.out, study(materials[name], scheme, split, range(options.seeds), small=options.small))
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
