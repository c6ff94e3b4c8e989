"""Does every entry still work: one round of each at toy size, from files to the table or the figure."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedotp.errors import FedotpError
from fedotp.paper._draw import draw
from fedotp.paper._entry import Entry
from fedotp.paper._inputs import missing_inputs
from fedotp.paper._queue import Made, by_part, config_of, trials_of
from fedotp.paper._result import Result
from fedotp.paper._toy import Toy
from fedotp.runs import run_many


@dataclass(frozen=True)
class Checked:
    """What became of an entry: how much was made in which time, and what went wrong, if anything."""

    entry: Entry
    runs: int
    cells: int
    figures: int
    seconds: float
    error: str = ""


def check(entries: Sequence[Entry], folder: Path) -> Iterator[Checked]:
    """Run entries one after the other at toy size in `folder`; those that share runs share them here, too."""
    toy = Toy(folder)
    for entry in entries:
        began = time.perf_counter()
        try:
            made, figures = _make(entry, toy, folder)
            result = Result.of(entry, made)
            result.save(folder)
            error = _wrong(entry, result, figures)
            n_runs = sum(len(outcomes) for _, outcomes in made)
            yield Checked(entry, n_runs, result.n_filled, len(figures), time.perf_counter() - began, error)
        except FedotpError as problem:
            yield Checked(entry, 0, 0, 0, time.perf_counter() - began, str(problem))


def _make(entry: Entry, toy: Toy, folder: Path) -> tuple[Made, list[Path]]:
    """Each part by itself: what makes a toy of it depends on its data."""
    made: Made = []
    figures = []
    for part in entry.parts:
        one = replace(entry, parts=(part,))
        changes = toy.changes(config_of(part))
        trials = trials_of(one, [0], changes=changes)
        if missing := missing_inputs(trial.config for trial in trials):
            raise FedotpError(f"{missing[0].what} is missing")
        outcomes = run_many(trials, folder / "runs")
        for outcome in outcomes:
            if outcome.error:
                raise FedotpError(f"{outcome.trial.name}: {outcome.error}")
        made += by_part(one, outcomes)
        if entry.drawing == "partition":
            figures += draw(one, made, folder, changes)
    return made, figures or draw(entry, made, folder)


def _wrong(entry: Entry, result: Result, figures: Sequence[Path]) -> str:
    """Whether a cell has no number of ours, or a figure was not drawn."""
    if empty := [line.cell for line in result.all_lines if line.mean is None]:
        return f"no number for {empty[0].method}, {empty[0].dataset} {empty[0].setting}".rstrip()
    if entry.drawing and not figures:
        return "nothing was drawn"
    return ""
