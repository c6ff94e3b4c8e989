"""Execution of many runs, and the table of their results."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from fedotp._system import keep_freed
from fedotp.cli.show import INTERRUPTED, SOME_FAILED, cell, print_checks, print_paths, print_table

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.runs.many import Outcome, Trial
    from fedotp.runs.tables import Table


_WIDE = 110  # terminal width that fits all columns


def run_trials(trials: "Sequence[Trial]", folder: Path, jobs: int, *, quiet: bool, against: int = 0) -> "list[Outcome]":
    """Run missing trials, print and save the table, and exit unless all are complete. Row `against` is the baseline."""
    from fedotp.runs.tables import Table

    outcomes = execute(trials, folder, jobs, quiet=quiet)
    table = Table.of(outcomes, against)
    if any(row.n for row in table.rows):
        _print(table)
        print_paths([("table", path) for path in table.save(folder)] + [("runs", folder)])
    require_complete(outcomes)
    return outcomes


def execute(trials: "Sequence[Trial]", folder: Path, jobs: int, *, quiet: bool) -> "list[Outcome]":
    """Run missing trials; a second Ctrl-C ends the command."""
    keep_freed()
    from fedotp.cli.progress import many_progress, say
    from fedotp.runs.many import run_many

    try:
        with many_progress(quiet=quiet) as observer:
            return run_many(trials, folder, jobs=jobs, observer=observer)
    except KeyboardInterrupt:
        say("stopped immediately; the same command continues after the last complete rounds")
        raise typer.Exit(INTERRUPTED) from None


def require_complete(outcomes: "Sequence[Outcome]") -> None:
    """Print failed and incomplete runs, and exit if there are any."""
    from fedotp.cli.progress import say

    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        say(f"failed: {outcome.trial.name}: {outcome.error}")
    if failed:
        raise typer.Exit(SOME_FAILED)
    left = sum(not outcome.directory.is_complete for outcome in outcomes)
    if left:
        say(f"stopped, {left} of {len(outcomes)} runs are incomplete; the same command continues them")
        raise typer.Exit(INTERRUPTED)


def _print(table: "Table") -> None:
    from fedotp.runs.tables import common_columns

    console = Console()
    columns = [column for column in common_columns() if console.width >= _WIDE or not column.if_wide]
    titles = [column.title for column in columns]
    short = [label.rpartition(".")[2] for label in table.labels]
    labels = short if len(set(short)) == len(short) else table.labels
    rows = [
        [cell(text, "" if number < len(table.rows) else "dim") for text in line]
        for number, line in enumerate(table.lines(columns))
    ]
    print_table((*labels, "runs", *titles), rows, right=("runs", *titles))
    print_checks(table.warnings, table.notes)
    print()
    if seen := table.view_tables(with_std=False):
        for views in seen:
            console.print(cell(f"views, {views.by}"))
            print_table((*labels, "round", *views.titles), views.lines, right=views.titles)
        console.print(cell(table.VIEWS_NOTE, "dim"))
        print()
    if lines := table.differences.lines():
        print_table(table.differences.titles, lines, right=table.differences.titles[1:4])
        console.print(cell(table.differences.note, "dim"))
        print()
