"""Do the control rows flag labels beside other images (`recipes.defect`), and are they silent where all is well?

Every seed is a split, and a defect, of its own: each of its runs is judged alone, as `fedotp compare` judges one run.

    python -m recipes.flagged runs/flagged --seeds 20
"""

import argparse
import csv
from pathlib import Path

from recipes.defect import mispaired, write_folder

from fedotp.config import Config, load_config
from fedotp.data import load_dataset, make_partition
from fedotp.runs import Outcome, by_method, check_runs, run_many

METHODS = ("fedotp",)
SETTINGS = (
    "partition.scheme=dirichlet",
    "partition.n_clients=10",
    "partition.alpha=0.3",
    "federation.rounds=2",
    "evaluation.every=0",
)


def runs_on(config: Config, folder: Path, seeds: range) -> list[Outcome]:
    """The methods' runs on the split and with the seed of each of `seeds`."""
    trials = [trial for seed in seeds for trial in by_method(config, METHODS, [seed], [seed])]
    return run_many(trials, folder)


def mispaired_copy(config: Config, folder: Path, seed: int) -> Config:
    """The same on a copy of the data in which the clients of split `seed` have labels beside other images."""
    config = config.override([f"partition.seed={seed}"])
    dataset = load_dataset(config.data.source)
    if not folder.exists():
        partition = make_partition(dataset, config.partition)
        write_folder(mispaired(dataset, partition.clients, seed=seed), folder)
    return config.override([f"data.dataset={folder}"])


def line(data: str, outcome: Outcome) -> dict[str, object]:
    """What a run scored, what its controls did, and what it is not above."""
    config, summary = outcome.directory.config, outcome.directory.summary
    checks = check_runs([(config, summary)])
    return {
        "data": data,
        "seed": config.seed,
        "method": config.title,
        "accuracy": summary["final"]["accuracy"],
        **{check.control: summary["controls"][check.control]["accuracy"] for check in checks},
        "not_above": " ".join(check.control for check in checks if not check.is_passed),
    }


def main() -> None:
    """Run both, write flagged.csv and print how many seeds are flagged."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path, help="of the runs, the copies of the data, and flagged.csv")
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    config = load_config("demo").override([*SETTINGS, f"data.store={given.folder / 'tokens'}"])
    seeds = range(given.seeds)
    lines = [line("clean", outcome) for outcome in runs_on(config, given.folder / "clean", seeds)]
    for seed in seeds:
        copy = mispaired_copy(config, given.folder / "data" / f"split{seed}", seed)
        lines += [line("mispaired", o) for o in runs_on(copy, given.folder / f"mispaired{seed}", range(seed, seed + 1))]
    names = ["data", "seed", "method", "accuracy", "majority", "zero_shot", "global_part", "not_above"]
    with open(given.folder / "flagged.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    for data in ("clean", "mispaired"):
        for title in dict.fromkeys(found["method"] for found in lines):
            mine = [found for found in lines if (found["data"], found["method"]) == (data, title)]
            flagged = sum("majority" in str(found["not_above"]) for found in mine)
            others = sum(bool(found["not_above"]) for found in mine)
            print(f"{data}: {title} not above the majority class in {flagged} of {len(mine)}, marked in {others}")


if __name__ == "__main__":
    main()
