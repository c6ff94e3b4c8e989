"""Run what the authors' code does otherwise, one difference at a time and all together; one CSV file of what came out.

    python -m recipes.bridge.study runs/bridge docs/results/bridge.csv --device cuda
    python -m recipes.bridge.study runs/bridge docs/results/bridge.csv --device cuda --cifar100 data

Again: it goes on where it was stopped. The file is written after each setting. `--cifar100` is a folder with
`cifar-100-python`, which does not come with fedotp (recipes/bridge/cifar100.py makes a small one); without it the
setting with coarse labels is left out. `--toy` runs everything for two rounds on one split and seed, without crops.
"""

import argparse
import csv
import sys
from pathlib import Path

from recipes.bridge.settings import SETTINGS, trials

from fedotp.runs import Local, RunDirectory, Trial, run_many

FIELDS = ("setting", "change", "split", "seed", "accuracy", "last_five", "zero_shot")
_TOY = ("federation.rounds=2", "federation.local_epochs=1", "evaluation.every=1", "data.views=0")


def main() -> None:
    """Run what is missing and write the file."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("runs", type=Path, help="folder of the runs")
    parser.add_argument("csv", type=Path, help="the file of their numbers")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="some of them, separated by commas")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--cifar100", type=Path, help="the folder that has cifar-100-python")
    parser.add_argument("--toy", action="store_true")
    given = parser.parse_args()
    failed: list[str] = []
    rows: list[dict[str, object]] = []
    for name in given.settings.split(","):
        if SETTINGS[name].needs and given.cifar100 is None:
            print(f"{name}: left out, needs --{SETTINGS[name].needs}", file=sys.stderr)
            continue
        wanted = _trials(name, given)
        print(f"{name}: {len(wanted)} runs", file=sys.stderr)
        for outcome in run_many(wanted, given.runs, engine=Local(given.jobs)):
            if outcome.error:
                failed.append(f"{outcome.trial.name}: {outcome.error}")
            elif outcome.directory.is_complete:
                rows.append(_row(name, outcome.trial, outcome.directory))
        _write(given.csv, rows)
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    if failed:
        sys.exit(1)


def _trials(name: str, given: argparse.Namespace) -> list[Trial]:
    more = (f"compute.device={given.device}",)
    if SETTINGS[name].needs:
        more += (f"data.root={given.cifar100}",)
    found = trials(name, (*more, *_TOY) if given.toy else more)
    setting = SETTINGS[name]
    least = f",split={setting.splits[0]},seed={setting.seeds[0]}"
    return [trial for trial in found if trial.name.endswith(least)] if given.toy else found


def _row(setting: str, trial: Trial, run: RunDirectory) -> dict[str, object]:
    config, summary = trial.config, run.summary
    values = {
        "accuracy": summary["final"]["accuracy"],
        "last_five": summary["last_five"]["accuracy"],
        "zero_shot": summary["controls"].get("zero_shot", {}).get("accuracy", ""),
    }
    return {
        "setting": setting,
        "change": trial.labels["change"],
        "split": config.partition.seed,
        "seed": config.seed,
        **{key: f"{value:.6f}" if isinstance(value, float) else value for key, value in values.items()},
    }


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
