"""`fedotp paper`: run the paper's tables and figures and compare them with its numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedotp.cli import _complete, _options
from fedotp.cli._trials import execute, require_complete
from fedotp.cli.show import cell, command, print_checks, print_paths, print_table
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.paper import Entry, Made, Result

app = typer.Typer(help="The paper's tables and figures: list, run, show.", no_args_is_help=True)

_OUT = Path("runs/paper")
_SEEDS = "0,1,2"
_WIDE = 120  # terminal width that fits all columns
_NARROW = 4  # columns that fit any terminal

EntryArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENTRY",
        help="A table or figure, for example table1; see `fedotp paper list`.",
        autocompletion=_complete.entries,
    ),
]
OutOption = Annotated[Path, typer.Option(help="Folder of the runs, shared by all entries.")]
OnlyOption = Annotated[
    str | None, typer.Option(metavar="NAME,...", help="Only these data sets and methods, as named in the table.")
]


@app.command("list")
def list_entries(seeds: _options.SeedsOption = _SEEDS) -> None:
    """List the tables and figures and their numbers of runs; docs/paper.md lists their cost.

    Example: fedotp paper list --seeds 0
    """
    from fedotp.paper import ENTRIES, numbers

    right, n_seeds = ("cells", "runs"), len(_options.whole_numbers(seeds, "--seeds"))
    rows = (
        (entry.name, entry.title, len(numbers(entry.name)) or "-", n_seeds * len(entry.parts) * len(entry.methods))
        for entry in ENTRIES.values()
    )
    print_table(("entry", "title", *right), rows, right=right)


@app.command()
def run(
    entry: EntryArgument,
    seeds: _options.SeedsOption = _SEEDS,
    splits: _options.SplitsOption = None,
    only: OnlyOption = None,
    controls: _options.ControlsOption = False,
    changes: _options.SetOption = None,
    out: OutOption = _OUT,
    jobs: _options.JobsOption = 1,
    quiet: _options.QuietOption = False,
) -> None:
    """Run a table or figure; print and save it beside the paper's numbers.

    Missing weights and data are listed before anything starts. Runs are below
    --out, and other entries reuse them. If interrupted, the same command skips
    complete runs and continues.

    \b
    Examples:
      fedotp paper run table1 --set data.root=~/data
      fedotp paper run table1 --only OxfordPets,fedotp,coop --seeds 0
      fedotp paper run tableA4 --set data.root=~/data --set compute.device=cuda:1
    """
    from fedotp.paper import by_part, draw, entry_named, missing_inputs, trials_of

    whole = entry_named(entry)
    wanted = _only(whole, only)
    given = changes or []
    numbers = None if splits is None else _options.whole_numbers(splits, "--splits")
    trials = trials_of(wanted, _options.whole_numbers(seeds, "--seeds"), numbers, changes=given, controls=controls)
    if missing := missing_inputs(part.config(given) for part in wanted.parts):
        rows: list[tuple[str, str | Path]] = []
        for one in missing:
            rows.append(("missing", one.what))
            for url, place in one.files:
                rows += [("  from", url), ("  into", place)]
            rows += [("  fetch", command(*one.command))] if one.command else []
            rows += [("  note", one.advice)] if one.advice else []
        print_paths(rows)
        raise FedotpError(
            f"missing inputs: {len(missing)}, listed above; nothing was started "
            "(set the folder of the data with --set data.root=FOLDER)"
        )
    outcomes = execute(trials, out, jobs, quiet=quiet) if trials else []
    made = by_part(wanted, outcomes)
    figures, problem = list[Path](), None
    try:
        figures = draw(wanted, made, out, given)
    except FedotpError as error:  # raised after the table is printed
        problem = error
    _show(wanted, made, whole, out, figures)
    require_complete(outcomes)
    if problem is not None:
        raise problem


@app.command()
def show(entry: EntryArgument, only: OnlyOption = None, out: OutOption = _OUT) -> None:
    """Show the paper's numbers beside the runs made so far, without running anything.

    \b
    Examples:
      fedotp paper show table1
      fedotp paper show tableA4 --only DTD --out runs/paper
    """
    from fedotp.paper import entry_named, find_made

    whole = entry_named(entry)
    wanted = _only(whole, only)
    _show(wanted, find_made(wanted, out), whole, out, [])


def _only(entry: "Entry", names: str | None) -> "Entry":
    return entry.only([name.strip() for name in names.split(",")]) if names else entry


def _show(entry: "Entry", made: "Made", whole: "Entry", folder: Path, figures: Sequence[Path]) -> None:
    """Print an entry; save the results so far of the `whole` entry, of which it may be a part."""
    from fedotp.paper import Result, find_made

    result = Result.of(entry, made)
    Console().print(cell(f"{entry.called}: {entry.title}", "bold"), soft_wrap=True)
    if result.all_lines:
        _print_blocks(result)
    for note in result.notes:
        Console().print(cell(f"- {note}", "dim"))
    if not folder.is_dir():  # nothing was run
        return
    print()
    saved = Result.of(whole, find_made(whole, folder)).save(folder) if result.all_lines else []
    written = [("table", path) for path in saved]
    written += [("figure", path) for path in figures]
    print_paths([*written, ("runs", folder)])


def _print_blocks(result: "Result") -> None:
    console = Console()
    titles = result.titles if console.width >= _WIDE else result.titles[:_NARROW]
    for block in result.blocks:
        console.print(cell(block.title, "bold"))
        rows = [
            [cell(text, "" if number < len(block.lines) else "dim") for text in row[: 1 + len(titles)]]
            for number, row in enumerate(result.rows(block))
        ]
        print_table(("", *titles), rows, right=[title for title in titles if title != "verdict"])
        print_checks(block.warnings, block.notes)
        print()
    for grid in result.grids():
        console.print(cell(f"{grid.title}: paper / here, %" if grid.title else "paper / here, %", "bold"))
        print_table(("", *grid.columns), grid.rows, right=grid.columns, wide=True)
        print()
    if len(titles) < len(result.titles):
        console.print(cell(f"For differences with intervals, see the files or use at least {_WIDE} columns."))
