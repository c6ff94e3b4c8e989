"""Run the attacks, and write a line for every run.

    python -m recipes.attacks.study runs/attacks --jobs 12 --device cuda

Every run is a directory below FOLDER/runs; FOLDER/runs.csv has its numbers and grows with every run that ends. First
runs without an attack, then shares of 20 and 40 %, then those of 10 and 30 %. Again: what has a line is left out.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipes.attacks.settings import AIMED, METHODS, STAGES, Asked, asked
from recipes.claims.study import Recorder

from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import prepare, restore

NUMBERS = ("accuracy", "success", "malicious", "clients")


class AttackRecorder(Recorder):
    """Writes a line with how honest clients do, and who attacked."""

    columns: Sequence[str] = Asked.COLUMNS
    found: Sequence[str] = NUMBERS

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder

    def numbers(self, run: RunDirectory) -> list[Any]:
        """Of honest clients accuracy and attack success, and who attacked.

        `clients` are the accuracies of the clients by their numbers; of one that is not evaluated it is "-".
        """
        summary, names = run.summary, run.manifest["clients"]
        success = [view["last"] for view in summary.get("views", ()) if view["view"] == "attack success"]
        own = {client["name"]: f"{client['accuracy']:.6f}" for client in summary["clients"]}
        return [
            f"{summary['final']['accuracy']:.6f}",
            *(f"{value:.6f}" for value in success or [float("nan")]),
            " ".join(str(names.index(name)) for name in summary.get("malicious", ())),
            " ".join(own.get(name, "-") for name in names),
        ]

    def compare(self, honest: Sequence[Asked]) -> None:
        """What would pass for success without an attack: the same images, shown to runs that nobody attacked."""
        done = self.runs.keys(len(self.columns))
        for run in honest:
            for attack in AIMED:
                method, _, share, rule, split = run.key
                key = (method, attack, share, rule, split)
                if rule == "average" and key not in done:
                    self.runs.add([[*key, *_unattacked(self.folder / "runs" / run.trial.name, attack)]])


def _unattacked(path: Path, attack: str) -> list[Any]:
    _, simulator = restore(path, [f"attack.name={attack}", "attack.share=0.01"])
    (success,) = [view.evaluation.mean for view in simulator.see() if view.view == "attack success"]
    return ["nan", f"{success:.6f}", "", ""]


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--toy", action="store_true", help="two rounds, two splits, two attacks, two rules")
    parser.add_argument("--count", action="store_true", help="say how many runs there are, and run none")
    arguments = parser.parse_args()
    stages = [list(asked(shares, device=arguments.device, toy=arguments.toy)) for shares in STAGES]
    if arguments.count:
        print(" + ".join(str(len(stage)) for stage in stages), "runs of", ", ".join(METHODS))
        return
    recorder = AttackRecorder(arguments.folder)
    backdoor = next(run for run in stages[1] if run.trial.config.attack.name == "backdoor")
    prepare(backdoor.trial.config)  # painted images are encoded once, before all processes want them
    for stage in stages:
        recorder.run(stage, arguments.folder / "runs", arguments.jobs)
    recorder.compare(stages[0])
    sys.exit(1 if recorder.failed else 0)


if __name__ == "__main__":
    main()
