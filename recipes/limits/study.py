"""Train federations, and measure what their clients know of their limits.

    python -m recipes.limits.study                       # everything, into docs/results/limits; 20 minutes of one core
    python -m recipes.limits.study --splits 1 --rounds 1 --methods zeroshot --out /tmp/limits   # a trial
    python -m recipes.limits.tables                      # what docs/limits.md shows

Only what comes with fedotp is needed. Sites of `cifar10-mini` have classes mixed unevenly, those of `emoji` a vendor
each; the images of the other data set are the strangers. A federation is measured when it is trained; those in the
files already are not done again, so that the same command goes on where it was stopped.

coverage.csv   of 200 divisions of a client's test images into halves, one to calibrate by and one to measure on
outliers.csv   how well a score tells strangers from the half of its test images that a client did not calibrate by
"""

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench._record import commit, machine
from numpy.typing import NDArray
from recipes.limits.scores import BY_SCORES, CHOSEN, false_positive_rate, mahalanobis

import fedotp
from fedotp.classifier import looks_of
from fedotp.clip import ImageFeatures
from fedotp.data import load_dataset
from fedotp.data.store import encode
from fedotp.federation import Simulator
from fedotp.federation.testing import Predictor
from fedotp.limits import FLAGGED, Calibration, threshold
from fedotp.limits._conformal import nonconformity, rank
from fedotp.runs.one import restore

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Row = dict[str, Any]

OUT = Path("docs/results/limits")
DATA = {
    "cifar10-mini": ("partition.scheme=dirichlet", "partition.alpha=0.5", "partition.n_clients=5"),
    "emoji": ("partition.scheme=domain",),
}
METHODS = ("fedotp", "promptfl", "zeroshot")
COVERAGES = (0.8, 0.9, 0.95)
HALVES = 200
_CHUNK = 128


@dataclass(frozen=True, eq=False)
class Judged:
    """What a client says of n images: scores and probabilities (n, K), looks (n, e)."""

    scores: Floats
    probabilities: Floats
    looks: Floats

    @classmethod
    def of(cls, predictor: Predictor, images: Sequence[ImageFeatures]) -> "Judged":
        """Of batches with pooled (1, B, e) and tokens (1, B, V, e)."""
        scores = [predictor.scores(image) for image in images]
        probabilities = [predictor.log_probabilities(score)[0].exp() for score in scores]
        numbers = (
            np.concatenate([x.double().cpu().numpy() for x in each])
            for each in ([score[0] for score in scores], probabilities)
        )
        return cls(*numbers, np.concatenate([looks_of(image)[0] for image in images]))


# Coverage ------------------------------------------------------------------------------------------------------


def coverage_rows(clients: dict[str, tuple[Judged, Ints]], seed: int) -> Iterator[Row]:
    """For each client, calibrated by its own images and by those of all clients, and for all clients together.

    By lac, in the first split also by aps.
    """
    sizes = [len(labels) for _, labels in clients.values()]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    probabilities = np.concatenate([judged.probabilities for judged, _ in clients.values()])
    labels = np.concatenate([labels for _, labels in clients.values()])
    rng = np.random.default_rng(seed)
    halves = [_half(owner, rng) for _ in range(HALVES)]
    draws = rng.random(len(labels))
    kinds = (("lac", "lac", None), ("aps", "aps", None), ("aps, randomised", "aps", draws))
    for name, score, drawn in kinds if seed == 0 else kinds[:1]:
        scores = nonconformity(probabilities, score, drawn)
        true = scores[np.arange(len(labels)), labels]
        for asked in COVERAGES:
            for number, client in enumerate([*clients, "all"]):
                mine = owner == number if client in clients else np.ones(len(owner), bool)
                for by in ("own", "all") if client in clients else ("all",):
                    found = [_covered(scores, true, mine, half, asked, by == "own") for half in halves]
                    n = int((halves[0] & mine if by == "own" else halves[0]).sum())
                    yield {
                        "score": name,
                        "client": client,
                        "calibrated_by": by,
                        "asked": asked,
                        "images": n,
                        "expected": round(rank(n, asked) / (n + 1), 5),
                    } | _summary(probabilities, labels, mine, halves, found)


def _half(owner: Ints, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Half of the images of every client, rounded down."""
    chosen = np.zeros(len(owner), bool)
    for client in np.unique(owner):
        own = np.flatnonzero(owner == client)
        chosen[rng.permutation(own)[: len(own) // 2]] = True
    return chosen


def _covered(
    scores: Floats, true: Floats, mine: NDArray[np.bool_], half: NDArray[np.bool_], asked: float, own: bool
) -> tuple[float, NDArray[np.bool_]]:
    """Of one division how often the true class is covered, and the sets, of the images that are `mine`."""
    most = threshold(np.sort(true[half & mine if own else half]), asked)
    return float((true[mine & ~half] <= most).mean()), scores[mine & ~half] <= most


def _summary(
    probabilities: Floats,
    labels: Ints,
    mine: NDArray[np.bool_],
    halves: Sequence[NDArray[np.bool_]],
    found: Sequence[tuple[float, NDArray[np.bool_]]],
) -> Row:
    """Means over divisions; `never_empty` is the coverage with the most probable class in every set."""
    covered = np.array([share for share, _ in found])
    low, high = np.quantile(covered, [0.025, 0.975])
    with_best, sizes, empty = [], [], []
    for half, (_, members) in zip(halves, found, strict=True):
        rest = mine & ~half
        filled = members.copy()
        filled[np.arange(len(filled)), probabilities[rest].argmax(-1)] = True
        with_best.append(filled[np.arange(len(filled)), labels[rest]].mean())
        sizes.append(filled.sum(-1).mean())
        empty.append((~members.any(-1)).mean())
    numbers = {
        "coverage": covered.mean(),
        "low": low,
        "high": high,
        "never_empty": np.mean(with_best),
        "size": np.mean(sizes),
        "empty": np.mean(empty),
    }
    return {name: round(float(value), 5) for name, value in numbers.items()}


# Strangers -----------------------------------------------------------------------------------------------------


def outlier_rows(client: str, own: Judged, strangers: Judged, scale: float, seed: int) -> Iterator[Row]:
    """Of one client: half of its images are known, the other half and the strangers are to be told apart."""
    from sklearn.metrics import roc_auc_score  # slow to import

    order = np.random.default_rng(seed).permutation(len(own.looks))
    known, rest = np.split(order, [len(order) // 2])
    calibration = Calibration.of(own.probabilities[known], np.zeros(len(known), np.int64), own.looks[known])
    p_own, p_strangers = (calibration.p_values(looks) for looks in (own.looks[rest], strangers.looks))
    found = {name: (make(own.scores[rest], scale), make(strangers.scores, scale)) for name, make in BY_SCORES.items()}
    drawn = own.looks[known[: len(known) // 2]]  # half of the known images say what they look like
    found[CHOSEN] = calibration.distances(own.looks[rest]), calibration.distances(strangers.looks)
    found["mahalanobis"] = mahalanobis(drawn, own.looks[rest]), mahalanobis(drawn, strangers.looks)
    is_stranger = np.r_[np.zeros(len(rest)), np.ones(len(strangers.looks))]
    for name, (inside, outside) in found.items():
        flagged = (p_own, p_strangers) if name == CHOSEN else (None, None)
        shares = ["" if p is None else round(float((p <= FLAGGED).mean()), 5) for p in flagged]
        yield {
            "client": client,
            "score": name,
            "known": len(known),
            "own": len(rest),
            "strangers": len(outside),
            "auroc": round(float(roc_auc_score(is_stranger, np.r_[inside, outside])), 5),
            "fpr95": round(false_positive_rate(inside, outside), 5),
            "flagged_own": shares[0],
            "flagged_strangers": shares[1],
        }


# Federations ---------------------------------------------------------------------------------------------------


def train(data: str, method: str, split: int, rounds: int, device: str, folder: Path) -> Simulator:
    """One federation, trained."""
    changes = [
        f"data.dataset={data}",
        *DATA[data],
        f"partition.seed={split}",
        f"seed={split}",
        f"method.name={method}",
        f"federation.rounds={rounds}",
        f"compute.device={device}",
    ]
    config = fedotp.load_config("demo").override(changes)
    fedotp.run(config, folder / "run", progress=False)
    return restore(folder / "run", [f"compute.device={device}"])[1]


def batches(features: Any, rows: Ints, simulator: Simulator) -> list[ImageFeatures]:
    """Features of images, (1, B, ...) at a time."""
    parts = (rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK))
    task = simulator.task
    return [features.read(part[None], 0, device=task.device, dtype=task.dtype) for part in parts]


def measure(simulator: Simulator, data: str, split: int) -> tuple[list[Row], list[Row]]:
    """Rows of both files for one federation."""
    other = next(name for name in DATA if name != data)
    strangers = encode(load_dataset(other), simulator.task.clip).test
    foreign = batches(strangers, np.arange(len(strangers)), simulator)
    test, scale = simulator.data.test, float(simulator.task.logit_scale.double().exp())
    clients: dict[str, tuple[Judged, Ints]] = {}
    outliers: list[Row] = []
    for number, name in enumerate(simulator.data.names):
        rows, predictor = test.clients[number], simulator.predictor(np.array([number]))
        own = Judged.of(predictor, batches(test.features, rows, simulator))
        clients[name] = own, test.labels[rows]
        outliers += outlier_rows(name, own, Judged.of(predictor, foreign), scale, split)
    return list(coverage_rows(clients, split)), outliers


def main(words: Sequence[str]) -> None:
    """Do what the words of the command line ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--splits", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args(words)
    asked.out.mkdir(parents=True, exist_ok=True)
    files = [asked.out / "coverage.csv", asked.out / "outliers.csv"]
    for split in range(asked.splits):
        for data in asked.data.split(","):
            for method in asked.methods.split(","):
                key = {"data": data, "split": split, "method": method}
                if _is_done(files[1], key):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    simulator = train(data, method, split, asked.rounds, asked.device, Path(folder))
                    for path, rows in zip(files, measure(simulator, data, split), strict=True):
                        _append(path, [key | row for row in rows])
                print(*key.values(), flush=True)
    about = {"command": " ".join(["python -m recipes.limits.study", *words]), "commit": commit(), "machine": machine()}
    (asked.out / "about.json").write_text(json.dumps(about, indent=2) + "\n")


def _is_done(path: Path, key: Row) -> bool:
    """Whether the file has rows of a federation; its rows of the other file were written before."""
    if not path.is_file():
        return False
    with open(path, newline="") as file:
        return any(all(row[name] == str(value) for name, value in key.items()) for row in csv.DictReader(file))


def _append(path: Path, rows: Sequence[Row]) -> None:
    is_new = not path.is_file()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
