"""What privacy costs: accuracy at several epsilons, one training image or one whole site hidden.

    python -m recipes.privacy.study runs/privacy --jobs 2

First the length of steps is chosen, for every method, on a split of its own; then all is run with it on five others.
Every run is a directory below FOLDER/runs; FOLDER/runs.csv has its numbers and grows with every run that
ends. Again: what has a line is left out.
"""

import argparse
import csv
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipes.claims.study import RUNS, Recorder
from recipes.privacy.settings import OTHER_SPLITS, SETTINGS, Asked, asked

from fedotp.runs.directory import RunDirectory

NUMBERS = ("accuracy", "global_part", "zero_shot", "spent", "noise")


class PrivateRecorder(Recorder):
    """Writes a line with what was spent."""

    columns: Sequence[str] = Asked.COLUMNS
    found: Sequence[str] = NUMBERS

    def numbers(self, run: RunDirectory) -> list[Any]:
        """Accuracy, that of the global part and of zero-shot CLIP, all with the prior if any; epsilon spent, noise."""
        summary, privacy = run.summary, run.summary.get("privacy", {})
        controls = summary["controls"]
        prior = "_prior" if run.config.evaluation.prior else ""
        part = controls.get(f"global{prior}", summary["final"])
        scores = [summary["final"], part, controls[f"zero_shot{prior}"]]
        told = [score["accuracy"] for score in scores] + [privacy.get("epsilon", 0), privacy.get("noise", 0)]
        return [f"{number:.6f}" for number in told]


def best_steps(runs: Path) -> dict[tuple[str, ...], float]:
    """The length of steps with the highest mean accuracy on the splits that choose, by unit, method and epsilon."""
    found: dict[tuple[str, ...], dict[float, list[float]]] = {}
    with runs.open(newline="") as file:
        for row in csv.DictReader(file):
            if int(row["split"]) in OTHER_SPLITS:
                of_step = found.setdefault((row["unit"], row["method"], row["epsilon"]), {})
                of_step.setdefault(float(row["step"]), []).append(float(row["accuracy"]))
    return {key: max(of, key=lambda step: statistics.fmean(of[step])) for key, of in found.items()}


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="UNIT")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--toy", action="store_true", help="one round of few images, two epsilons")
    arguments = parser.parse_args()
    recorder = PrivateRecorder(arguments.folder)

    def run(steps: dict[tuple[str, ...], float] | None) -> None:
        runs = [
            each for name in arguments.only for each in asked(name, steps, device=arguments.device, toy=arguments.toy)
        ]
        recorder.run(runs, arguments.folder / "runs", arguments.jobs)

    run(None)
    if not recorder.failed:
        run(best_steps(arguments.folder / RUNS))
    sys.exit(1 if recorder.failed else 0)


if __name__ == "__main__":
    main()
