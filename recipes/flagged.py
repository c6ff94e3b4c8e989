"""Do the control rows flag labels beside other images (`recipes.defect`), and are they silent where all is well?

Every seed is a split, and a defect, of its own: each of its runs is judged alone, as `fedotp compare` judges one run.

    python -m recipes.flagged runs/flagged --seeds 20
"""

import argparse
import csv
from pathlib import Path
from typing import Any

from recipes.defect import mispaired, write_folder

from fedotp.config import Config, load_config
from fedotp.data import load_dataset
from fedotp.data.partition import make_partition
from fedotp.runs.many import Outcome, by_method, run_many
from fedotp.runs.tables import check_runs

METHODS = ("fedotp",)
CONTROLS = ("majority", "zero_shot", "global")
SETTINGS = ("partition.scheme=dirichlet", "partition.n_clients=10", "partition.alpha=0.3", "evaluation.every=0")


def runs_on(config: Config, folder: Path, seeds: range) -> list[Outcome]:
    """The methods' runs on the split and with the seed of each of `seeds`."""
    trials = [trial for seed in seeds for trial in by_method(config, METHODS, [seed], [seed])]
    return run_many(trials, folder)


def mispaired_copy(config: Config, folder: Path, seed: int) -> Config:
    """The same on a copy of the data in which the clients of split `seed` have labels beside other images."""
    config = config.override([f"partition.seed={seed}"])
    dataset = load_dataset(config.data.source)
    if not folder.exists():
        partition = make_partition(dataset, config.partition, authors=config.authors.partition)
        write_folder(mispaired(dataset, partition.clients, seed=seed), folder)
    return config.override([f"data.dataset={folder}"])


def _numbered(outcomes: list[Outcome]) -> list[tuple[tuple[int, int], dict[str, Any]]]:
    """Split, seed and summary of runs."""
    found = [(outcome.directory.config, outcome.directory.summary) for outcome in outcomes]
    return [((config.partition.seed, config.seed), summary) for config, summary in found]


def line(data: str, outcome: Outcome) -> dict[str, object]:
    """What a run scored, what its controls did, and what it is not above."""
    config, summary = outcome.directory.config, outcome.directory.summary
    checks = check_runs(_numbered([outcome]))
    return {
        "data": data,
        "seed": config.seed,
        "method": config.title,
        "accuracy": summary["final"]["accuracy"],
        **{check.control: summary["controls"][check.control]["accuracy"] for check in checks},
        "not_above": " ".join(check.control for check in checks if not check.difference.is_above),
    }


def main() -> None:
    """Run both, write flagged.csv and print how many seeds are flagged."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="of the runs, the copies of the data, and flagged.csv")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    settings = [*SETTINGS, f"federation.rounds={given.rounds}", f"data.store={given.folder / 'tokens'}"]
    config = load_config("demo").override(settings)
    seeds = range(given.seeds)
    outcomes = {"clean": runs_on(config, given.folder / "clean", seeds), "mispaired": []}
    for seed in seeds:
        copy = mispaired_copy(config, given.folder / "data" / f"split{seed}", seed)
        outcomes["mispaired"] += runs_on(copy, given.folder / f"mispaired{seed}", range(seed, seed + 1))
    lines = [line(data, outcome) for data, some in outcomes.items() for outcome in some]
    names = ["data", "seed", "method", "accuracy", *CONTROLS, "not_above"]
    with open(given.folder / "flagged.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    for data, some in outcomes.items():
        marks = [str(found["not_above"]) for found in lines if found["data"] == data]
        for control in CONTROLS:
            print(f"{data}: not above {control} in {sum(control in mark for mark in marks)} of {len(marks)} runs")
        checks = check_runs(_numbered(some))
        print(
            f"{data}, all runs: not above",
            [check.control for check in checks if not check.difference.is_above] or "none",
        )


if __name__ == "__main__":
    main()
