"""Run what the authors' code does otherwise, one difference at a time and all together; one CSV file of what came out.

    python -m recipes.bridge.study runs/bridge docs/results/bridge.csv --device cuda
    python -m recipes.bridge.study runs/bridge docs/results/bridge.csv --device cuda --cifar100 data

Again: it goes on where it was stopped. The file grows with every run that ends; what has a line there is left out.
`--cifar100` is a folder with `cifar-100-python`, which does not come with fedotp (recipes/bridge/cifar100.py makes a
small one); without it the setting with coarse labels is left out. `--toy` runs everything for two rounds on one split
and seed, without crops.
"""

import argparse
import csv
import sys
from pathlib import Path

from recipes.bridge.settings import SETTINGS, trials

from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import ManyObserver, Outcome, Trial, run_many

FIELDS = ("setting", "change", "split", "seed", "accuracy", "last_five", "zero_shot")
_TOY = ("federation.rounds=2", "federation.local_epochs=1", "evaluation.every=1", "data.crops=0")


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
    recorder = Recorder(given.csv)
    for name in given.settings.split(","):
        if SETTINGS[name].needs and given.cifar100 is None:
            print(f"{name}: left out, needs --{SETTINGS[name].needs}", file=sys.stderr)
            continue
        wanted = [trial for trial in _trials(name, given) if not recorder.has(name, trial)]
        print(f"{name}: {len(wanted)} runs", file=sys.stderr)
        recorder.setting = name
        for outcome in run_many(wanted, given.runs, jobs=given.jobs, observer=recorder):
            recorder.on_outcome(outcome)  # of one that was complete already
    if recorder.failed:
        sys.exit(1)


class Recorder(ManyObserver):
    """Writes a line when a run ends."""

    def __init__(self, path: Path) -> None:
        self.path, self.setting, self.failed = path, "", 0
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(",".join(FIELDS) + "\n")
        with path.open(newline="") as file:
            self.done = {tuple(row[field] for field in FIELDS[:4]) for row in csv.DictReader(file)}

    def has(self, setting: str, trial: Trial) -> bool:
        """Whether a run has its line."""
        return _key(setting, trial) in self.done

    def on_outcome(self, outcome: Outcome) -> None:
        """Write it down, if it is complete and new."""
        key = _key(self.setting, outcome.trial)
        if outcome.error and key not in self.done:
            self.failed += 1
            print(f"failed: {outcome.trial.name}: {outcome.error}", file=sys.stderr)
        elif outcome.directory.is_complete and key not in self.done:
            with self.path.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow([*key, *_numbers(outcome.directory)])
        self.done.add(key)


def _key(setting: str, trial: Trial) -> tuple[str, ...]:
    """The first four columns."""
    return setting, trial.labels["change"], str(trial.config.partition.seed), str(trial.config.seed)


def _trials(name: str, given: argparse.Namespace) -> list[Trial]:
    more = (f"compute.device={given.device}",)
    if SETTINGS[name].needs:
        more += (f"data.root={given.cifar100}",)
    found = trials(name, (*more, *_TOY) if given.toy else more)
    setting = SETTINGS[name]
    least = f",split={setting.splits[0]},seed={setting.seeds[0]}"
    return [trial for trial in found if trial.name.endswith(least)] if given.toy else found


def _numbers(run: RunDirectory) -> list[str]:
    """The other columns."""
    summary = run.summary
    zero_shot = summary["controls"].get("zero_shot", {}).get("accuracy")
    values = (summary["final"]["accuracy"], summary["last_five"]["accuracy"], zero_shot)
    return ["" if value is None else f"{value:.6f}" for value in values]


if __name__ == "__main__":
    main()
