"""Run what the paper's claims are tested on, and write a line for every run.

    python -m recipes.claims.study runs/claims --jobs 16 --device cuda

First every method at several learning rates on two splits of their own, then all that is compared, each method with
the rate that was best there. Every run is a directory below FOLDER/runs; FOLDER/runs.csv has its numbers and grows
with every run that ends. Again: what has a line is left out.
"""

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recipes.claims.settings import CHOOSING, SETTINGS, Asked, asked

from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import ManyObserver, Outcome, run_many

NUMBERS = ("accuracy", "worst_decile", "zero_shot", "global_part")
RUNS = "runs.csv"
_EVERY = 10.0  # seconds between words on how far it is


class Lines:
    """A CSV file that grows by whole lines."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.add([columns])

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Append them, and let them be on the disk."""
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)

    def keys(self, n: int) -> set[tuple[str, ...]]:
        """The first `n` columns of every line that there is."""
        with self.path.open(newline="") as file:
            return {tuple(row[:n]) for row in csv.reader(file)}


def numbers(run: RunDirectory) -> list[Any]:
    """What runs.csv has of a complete run."""
    summary = run.summary
    controls = {name: found.get("accuracy") for name, found in summary["controls"].items()}
    final = summary["final"]
    found = [final["accuracy"], final["accuracy_worst_decile"], controls.get("zero_shot"), controls.get("global")]
    return ["" if number is None else f"{number:.6f}" for number in found]


def best_rates(runs: Path) -> dict[tuple[str, str], float]:
    """The learning rate with the highest mean accuracy, by the setting that was to choose it and method."""
    found: dict[tuple[str, str], dict[float, list[float]]] = {}
    with runs.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["setting"] in CHOOSING:
                of_rate = found.setdefault((row["setting"], row["method"]), {})
                of_rate.setdefault(float(row["value"]), []).append(float(row["accuracy"]))
    return {key: max(of, key=lambda rate: statistics.fmean(of[rate])) for key, of in found.items()}


class Recorder(ManyObserver):
    """Writes a line when a run ends, and says now and then how far it is."""

    columns: Sequence[str] = Asked.COLUMNS
    found: Sequence[str] = NUMBERS

    def __init__(self, folder: Path) -> None:
        self.runs = Lines(folder / RUNS, (*self.columns, *self.found))
        self.keys: dict[str, tuple[str, ...]] = {}
        self.left = self.failed = 0
        self.begun = self.said = time.monotonic()

    def run(self, all_of: Sequence[Asked], folder: Path, jobs: int) -> None:
        """Run those that have no line yet."""
        done = self.runs.keys(len(self.columns))
        todo = [run for run in all_of if run.key not in done]
        self.keys, self.left = {run.trial.name: run.key for run in todo}, len(todo)
        print(f"{len(all_of)} runs, {len(todo)} of them to do", flush=True)
        outcomes = run_many([run.trial for run in todo], folder, jobs=jobs, observer=self)
        done = self.runs.keys(len(self.columns))
        for outcome in outcomes:  # complete, but killed before its line was written
            if outcome.directory.is_complete and self.keys[outcome.trial.name] not in done:
                self.record(outcome)

    def on_outcome(self, outcome: Outcome) -> None:
        """Write it down, if it is complete."""
        self.left -= 1
        if outcome.error:
            self.failed += 1
            print(f"failed: {outcome.trial.name}: {outcome.error}", file=sys.stderr, flush=True)
        elif outcome.directory.is_complete:
            self.record(outcome)
        if not self.left or time.monotonic() > self.said + _EVERY:
            self.said = time.monotonic()
            print(f"{self.said - self.begun:.0f} s: {self.left} runs left, {self.failed} failed", flush=True)

    def record(self, outcome: Outcome) -> None:
        """Write down a run that is complete."""
        run, key = outcome.directory, self.keys[outcome.trial.name]
        self.runs.add([[*key, *self.numbers(run)]])

    def numbers(self, run: RunDirectory) -> list[Any]:
        """What a line has of a complete run."""
        return numbers(run)


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=Path, help="where the runs' directories go, if not to FOLDER/runs")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--toy", action="store_true", help="two rounds, two splits, the ends of what is varied")
    parser.add_argument("--count", action="store_true", help="say how many runs there are, and run none")
    arguments = parser.parse_args()

    def all_of(names: Iterable[str], rates: Mapping[tuple[str, str], float]) -> list[Asked]:
        return [run for name in names for run in asked(name, rates, device=arguments.device, toy=arguments.toy)]

    choosing = [name for name in CHOOSING if name in {SETTINGS[name].rates for name in arguments.only}]
    if arguments.count:
        print(len(all_of(choosing, {})), "runs choose learning rates,", len(all_of(arguments.only, {})), "are compared")
        return
    recorder = Recorder(arguments.folder)
    runs = arguments.runs or arguments.folder / "runs"
    recorder.run(all_of(choosing, {}), runs, arguments.jobs)
    if not recorder.failed:
        rates = best_rates(arguments.folder / RUNS)
        recorder.run(all_of(arguments.only, rates), runs, arguments.jobs)
    sys.exit(1 if recorder.failed else 0)


if __name__ == "__main__":
    main()
