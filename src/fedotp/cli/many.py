"""`fedotp compare` and `fedotp sweep`: many runs, one table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedotp.cli.run import INTERRUPTED, QuietOption, SetOption, SourceArgument
from fedotp.cli.show import cell, listing, print_paths
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # torch takes a second to import, which `--help` need not wait for
    from fedotp.config import Config
    from fedotp.runs import Outcome, Table, Trial

app = typer.Typer()

SeedsOption = Annotated[str, typer.Option(help="Seeds, separated by commas; the split is that of partition.seed.")]
JobsOption = Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process of its own.")]


@app.command()
def compare(
    source: SourceArgument = None,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; options follow a name, each after a colon.")
    ] = "fedotp,promptfl,coop,zeroshot",
    seeds: SeedsOption = "0,1,2",
    changes: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; runs/compare-PRESET if not given.")] = None,
    jobs: JobsOption = 1,
    quiet: QuietOption = False,
) -> None:
    """Compare methods on one split of the data: a table of mean and standard deviation over seeds.

    Every method with every seed is a run of its own below --out. Stop it when
    you like: the same command again keeps what is complete and does the rest.
    The table is also saved, as table.csv and table.md.

    \b
    Examples:
      fedotp compare demo
      fedotp compare office --methods fedotp,promptfl --seeds 0,1 --jobs 2
      fedotp compare --methods fedotp,fedotp:rule=classical,fedotp:rule=average
      fedotp compare --methods fedotp:reg=0.01:mass=0.9,coop:optimizer.lr=0.01
    """
    from fedotp.runs import by_method

    config = _load(source, changes)
    trials = by_method(config, methods.split(","), _seeds(seeds))
    run_trials(trials, out or _default("compare", source), jobs, quiet=quiet)


@app.command()
def sweep(
    source: SourceArgument = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="A setting and its values; any number of times, all combinations."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, separated by commas; the configuration's if not given.")
    ] = None,
    changes: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; runs/sweep-PRESET if not given.")] = None,
    jobs: JobsOption = 1,
    quiet: QuietOption = False,
) -> None:
    """Run every combination of some settings: a table of them, seeds as mean and standard deviation.

    Every combination with every seed is a run of its own below --out. Stop it
    when you like: the same command again keeps what is complete and does the
    rest. The table is also saved, as table.csv and table.md.

    \b
    Examples:
      fedotp sweep demo --grid method.mass=0.5,0.7,0.9
      fedotp sweep demo --grid method.mass=0.5,0.9 --grid optimizer.lr=0.01,0.1
      fedotp sweep cifar10 --grid partition.alpha=0.1,0.5 --seeds 0,1,2 --jobs 2
    """
    from fedotp.runs import by_grid

    if not grid:
        raise FedotpError("say what to vary, for example --grid method.mass=0.5,0.7,0.9")
    config = _load(source, changes)
    trials = by_grid(config, grid, [config.seed] if seeds is None else _seeds(seeds))
    run_trials(trials, out or _default("sweep", source), jobs, quiet=quiet)


def run_trials(trials: "Sequence[Trial]", folder: Path, jobs: int, *, quiet: bool) -> "list[Outcome]":
    """Run what is missing, print and save the table; where not all is complete, end the command."""
    from fedotp.cli.many_progress import many_progress
    from fedotp.cli.progress import say
    from fedotp.runs import Table, run_many

    try:
        with many_progress(quiet=quiet) as observer:
            outcomes = run_many(trials, folder, jobs=jobs, observer=observer)
    except KeyboardInterrupt:
        say("stopped at once; the same command again goes on after the last whole rounds")
        raise typer.Exit(INTERRUPTED) from None
    table = Table.of(outcomes)
    if any(row.n for row in table.rows):
        _print(table)
        print_paths([("table", path) for path in table.save(folder)] + [("runs", folder)])
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        say(f"failed: {outcome.trial.name}: {outcome.error}")
    if failed:
        raise typer.Exit(1)
    left = sum(not outcome.directory.is_complete for outcome in outcomes)
    if left:
        say(f"stopped, {left} of {len(outcomes)} runs are left; the same command again goes on with them")
        raise typer.Exit(INTERRUPTED)
    return outcomes


def _print(table: "Table") -> None:
    from fedotp.runs import common_columns

    columns = common_columns()
    titles = [column.title for column in columns]
    short = [label.rpartition(".")[2] for label in table.labels]
    labels = short if len(set(short)) == len(short) else table.labels
    shown = listing(*labels, "seeds", *titles, right=("seeds", *titles))
    for row in table.rows:
        shown.add_row(*map(cell, (*row.labels, row.seeds, *table.texts(row, columns))))
    Console().print(shown)
    print()


def _load(source: str | None, changes: list[str] | None) -> "Config":
    from fedotp.config import load_config

    return load_config(source or "demo").override(changes or [])


def _default(what: str, source: str | None) -> Path:
    return Path("runs") / f"{what}-{Path(source or 'demo').stem}"


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise FedotpError(f"--seeds {text}: must be whole numbers, separated by commas, for example 0,1,2") from None
