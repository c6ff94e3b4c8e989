"""`fedotp compare` and `fedotp sweep`: many runs, one table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedotp.cli._options import METHODS, SOURCE, QuietOption, SetOption, SourceArgument
from fedotp.cli._trials import run_trials
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # torch takes a second to import, which `--help` need not wait for
    from fedotp.config import Config

app = typer.Typer()

_MOST_SEEDS = 10_000  # of a range: each is a run

SeedsOption = Annotated[str, typer.Option(help="Seeds, such as 0,1,2 or 0..11; the split is that of partition.seed.")]
JobsOption = Annotated[int, typer.Option(min=1, help="Processes at a time, each with runs of its own.")]


@app.command()
def compare(
    source: SourceArgument = None,
    methods: Annotated[
        str, typer.Option(help="Methods, separated by commas; options follow a name, each after a colon.")
    ] = METHODS,
    seeds: SeedsOption = "0,1,2",
    changes: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; runs/compare-PRESET if not given.")] = None,
    jobs: JobsOption = 1,
    quiet: QuietOption = False,
) -> None:
    """Compare methods on one split of the data: a table of mean and standard deviation over seeds.

    Every method with every seed is a run of its own below --out. Stop it when
    you like: the same command again keeps what is complete and does the rest.
    The seeds of a method are trained side by side, as many as fit into memory:
    twelve take far less than twelve times as long as one. The table is also
    saved, as table.csv and table.md.

    \b
    Examples:
      fedotp compare demo
      fedotp compare office --methods fedotp,promptfl --seeds 0..11
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
        str | None, typer.Option(help="Seeds, such as 0,1,2 or 0..11; the configuration's if not given.")
    ] = None,
    changes: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; runs/sweep-PRESET if not given.")] = None,
    jobs: JobsOption = 1,
    quiet: QuietOption = False,
) -> None:
    """Run every combination of some settings: a table of them, seeds as mean and standard deviation.

    Every combination with every seed is a run of its own below --out. Stop it
    when you like: the same command again keeps what is complete and does the
    rest. Seeds, splits, learning rates, masses, and whatever else does not
    change what a training step is, are trained side by side, as many as fit
    into memory. The table is also saved, as table.csv and table.md.

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


def _load(source: str | None, changes: list[str] | None) -> "Config":
    from fedotp.config import load_config

    return load_config(source or SOURCE).override(changes or [])


def _default(what: str, source: str | None) -> Path:
    return Path("runs") / f"{what}-{Path(source or SOURCE).stem}"


def _seeds(text: str) -> list[int]:
    """The seeds that "0,1,5..7" names."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dots, last = part.partition("..")
            numbers = range(int(first), int(last) + 1 if dots else int(first) + 1)
            if not 0 < len(numbers) <= _MOST_SEEDS:
                raise ValueError
            seeds += numbers
    except (ValueError, OverflowError):
        raise FedotpError(
            f"--seeds {text}: must be whole numbers and ranges, separated by commas, for example 0,1,2 or 0..11"
        ) from None
    return seeds
