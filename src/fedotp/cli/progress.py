"""How a run reports while it goes: a live display, plain lines, JSON lines, or not at all."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from fedotp._text import counted, printable
from fedotp.config import Config
from fedotp.federation import Evaluation, RoundReport, View
from fedotp.runs.one import round_record
from fedotp.runs.watch import STOPPING, LiveDisplay, Observer, accuracy_text


@contextmanager
def run_progress(*, quiet: bool = False, as_json: bool = False) -> Iterator[Observer]:
    """The observer that suits the terminal and the options."""
    console = Console(stderr=True)
    if as_json:
        yield JsonLines()
    elif quiet:
        yield Observer()
    elif console.is_terminal:
        with LiveDisplay(console) as display:
            yield display
    else:
        yield PlainLines()


class PlainLines(Observer):
    """A line on stderr for every evaluation, as a log file wants it."""

    def __init__(self) -> None:
        self._rounds = 0
        self._training = ""
        self._seen: set[str] = set()

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """One line for each split that has to be encoded."""
        if what.startswith("encoding") and what not in self._seen:
            self._seen.add(what)
            say(f"{what}: {counted(total, 'image')}")

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Say where the run lies."""
        self._rounds = config.federation.rounds if images_per_round else 0
        say(f"{path}: " + (f"going on after round {round_}" if round_ else counted(self._rounds, "round")))

    def on_round(self, report: RoundReport) -> None:
        """Kept for the next line."""
        speed = report.n_images / max(report.seconds, 1e-9)
        self._training = f", loss {report.mean_loss:.3f}{report.spent}, {speed:,.0f} images/s"

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """A line."""
        say(f"round {round_} of {self._rounds}: {accuracy_text(evaluation)}{self._training}")

    def on_interrupt(self) -> None:
        """Say that it was heard."""
        say(STOPPING)


class JsonLines(Observer):
    """A JSON object on stdout for the start, every round and every evaluation."""

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        """Where the run lies and how far it is."""
        rounds = config.federation.rounds if images_per_round else 0
        print_json({"kind": "start", "run": str(path), "round": round_, "rounds": rounds})

    def on_round(self, report: RoundReport) -> None:
        """As in metrics.jsonl."""
        print_json(round_record(report))

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        """As in metrics.jsonl."""
        print_json({"kind": "evaluation", "round": round_, **evaluation.as_dict()})

    def on_view(self, round_: int, view: View) -> None:
        """As in metrics.jsonl."""
        print_json({"kind": "view", "round": round_, **view.as_dict()})


def print_json(record: dict[str, Any]) -> None:
    """One line on stdout, at once."""
    print(json.dumps(record, separators=(",", ":")), flush=True)


def say(text: str) -> None:
    """One line on stderr, whatever names are in it."""
    print(printable(text), file=sys.stderr, flush=True)
