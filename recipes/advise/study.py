"""Is `fedotp advise` right about test images? The rules are in README.md.

python -m recipes.advise.study docs/results/advise.csv --office ~/data
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from fedotp.config import Config, DataSettings
from fedotp.federation import Images, log_frequencies
from fedotp.methods import PersonalRidge
from fedotp.runs.advice import ALONE, CHOICES, PERSONAL, SHARED, SHARED_PRIOR, SHARING, ZERO_SHOT_PRIOR, advise_sites
from fedotp.runs.one import Prepared, prepare

SEEDS = range(200, 205)
SETTINGS = (  # data, scheme, clients, alpha, shots
    ("cifar10-mini", "iid", 2, None, None),
    ("cifar10-mini", "iid", 10, None, None),
    ("cifar10-mini", "iid", 50, None, None),
    ("cifar10-mini", "iid", 200, None, None),
    ("cifar10-mini", "iid", 10, None, 20),
    ("cifar10-mini", "dirichlet", 10, 0.1, None),
    ("cifar10-mini", "dirichlet", 50, 0.1, None),
    ("cifar10-mini", "dirichlet", 10, 0.1, 20),
    ("cifar10-mini", "dirichlet", 10, 0.5, None),
    ("cifar10-mini", "dirichlet", 50, 0.5, 100),
    ("cifar10-mini", "dirichlet", 200, 0.5, None),
    ("cifar10-mini", "dirichlet", 10, 2.0, None),
    ("cifar10-mini", "dirichlet", 100, 2.0, None),
    ("cifar10-mini", "dirichlet", 5, 2.0, 40),
    ("cifar10-mini", "pathological", 5, None, None),
    ("cifar10-mini", "pathological", 2, None, None),
    ("cifar10-mini", "pathological", 5, None, 10),
    ("emoji", "iid", 4, None, None),
    ("emoji", "iid", 8, None, None),
    ("emoji", "dirichlet", 10, 0.5, None),
    ("emoji", "dirichlet", 10, 0.1, None),
    ("emoji", "pathological", 8, None, None),
    ("emoji", "domain", 4, None, 5),
    ("emoji", "domain", 4, None, 2),
    ("emoji", "domain-dirichlet", 12, 0.5, None),
    ("office_caltech10", "domain", 4, None, 6),
    ("office_caltech10", "domain", 4, None, 3),
    ("office_caltech10", "domain-dirichlet", 12, 0.1, None),
    ("office_caltech10", "dirichlet", 20, 0.5, None),
    ("office_caltech10", "iid", 20, None, 40),
)
RIDGE = PersonalRidge()
Array = NDArray[np.float64]


def config_of(setting: tuple[Any, ...], seed: int, office: Path) -> Config:
    """The configuration of one federation."""
    data, scheme, clients, alpha, shots = setting
    given = {"scheme": scheme, "n_clients": clients, "alpha": alpha, "shots": shots, "seed": seed}
    changes = [f"partition.{key}={value}" for key, value in given.items() if value is not None]
    root = str(office) if data == "office_caltech10" else ""
    return Config(DataSettings(data, root=root)).override([*changes, "backbone.name=mini", "compute.device=cpu"])


def features(images: Images, rows: NDArray[np.int64]) -> tuple[Array, Array]:
    """The ridge's features, and pooled ones, of length 1: (n, e)."""
    image, _ = images.read(rows[None], 0, torch.device("cpu"), torch.float32)
    pooled = torch.nn.functional.normalize(image.pooled[0], dim=-1)
    return RIDGE.seen(image)[0].double().numpy(), pooled.double().numpy()


def test_accuracy(prepared: Prepared, regs: dict[str, float], alone_regs: dict[str, float]) -> dict[str, list[float]]:
    """Of each classifier on every site's own test images; the ridges are solved anew, in NumPy."""
    data, task = prepared.data, prepared.task
    n_classes, eye = len(task.classes), np.eye(len(task.classes))
    captions = RIDGE.shared(task, 1)["captions"].numpy()
    sums = []
    for rows in data.train.clients:
        x, y = features(data.train, rows)[0], eye[data.train.labels[rows]] - 1 / n_classes
        sums.append((x.T @ x, x.T @ y, len(rows)))
    gram, cross, n = (sum(parts[1:], parts[0]) for parts in zip(*sums, strict=True))

    def solved(gram: Array, cross: Array, n: int, reg: float) -> Array:
        return np.linalg.solve(gram + reg * n * np.eye(len(gram)), cross + reg * n * RIDGE.text * captions.T)

    shared = solved(gram, cross, n, regs[SHARED])
    found: dict[str, list[float]] = {name: [] for name in CHOICES}
    counts = data.class_counts(np.arange(len(data)), n_classes)
    for i, rows in enumerate(data.test.clients):
        if not len(rows):
            continue
        x, pooled = features(data.test, rows)
        prior = log_frequencies(counts[i], prepared.config.evaluation.smoothing).numpy()
        own_gram, own_cross, own = sums[i]
        logits = {
            ZERO_SHOT_PRIOR: task.logit_scale.exp().item() * pooled @ captions.T,
            ALONE: RIDGE.sharpness * x @ solved(own_gram, own_cross, own, alone_regs[data.names[i]]),
            SHARED_PRIOR: RIDGE.sharpness * x @ shared,
            PERSONAL: RIDGE.sharpness * x @ solved(gram + own_gram, cross + own_cross, n, regs[PERSONAL]),
        }
        for name, values in logits.items():
            found[name].append(float(((values + prior).argmax(1) == data.test.labels[rows]).mean()))
    return found


def main() -> None:
    """Run all settings, print and write a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--office", type=Path, required=True)
    parser.add_argument("--first-seed", type=int, default=SEEDS[0], help="other seeds are for trying things out")
    options = parser.parse_args()
    lines = []
    for setting in SETTINGS:
        answers, truths = [], []
        for seed in range(options.first_seed, options.first_seed + len(SEEDS)):
            prepared = prepare(config_of(setting, seed, options.office))
            answers.append(advise_sites(prepared.task, prepared.data, prepared.config.evaluation.smoothing))
            alone = {site.name: site.reg for site in answers[-1].sites}
            found = test_accuracy(prepared, answers[-1].regs, alone)
            truths.append({name: float(np.mean(values)) for name, values in found.items()})
        answer, sharing = answers[0], answers[0].gains[SHARING]
        gains = np.array([truth[PERSONAL] - truth[ALONE] for truth in truths])
        mean = float(gains.mean())
        low, high = stats.t.interval(0.95, len(gains) - 1, mean, stats.sem(gains)) if np.ptp(gains) else (mean, mean)
        means = {name: float(np.mean([truth[name] for truth in truths])) for name in CHOICES}
        signs = [np.sign(round(each.gains[SHARING].mean, 9)) * np.sign(round(mean, 9)) > 0 for each in answers]
        contradicts = (sharing.is_above and high < 0) or (sharing.is_below and low > 0)
        numbers = {"advised": sharing.mean, "advised_low": sharing.low, "advised_high": sharing.high}
        numbers |= {"true": mean, "true_low": low, "true_high": high}
        numbers |= {"points_below_best": max(means.values()) - means[answer.best]}
        numbers |= {f"test_{name.removesuffix(' + prior').replace(' ', '_')}": value for name, value in means.items()}
        lines.append(
            dict(zip(("data", "scheme", "clients", "alpha", "shots"), setting, strict=True))
            | {name: f"{100 * value:.2f}" for name, value in numbers.items()}
            | {"sign_right": signs[0], "seeds_right": sum(signs), "contradiction": contradicts}
            | {"recommended": answer.best, "best": max(means, key=means.__getitem__)}
        )
        print(*lines[-1].values(), flush=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    print(f"sign right in {sum(line['sign_right'] for line in lines)} of {len(lines)} settings")


if __name__ == "__main__":
    main()
