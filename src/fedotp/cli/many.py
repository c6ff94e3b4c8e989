"""`fedotp compare` and `fedotp sweep`: many runs, one table."""

from pathlib import Path
from typing import Annotated

import typer

from fedotp._system import open_driver
from fedotp.cli import _complete, _options
from fedotp.cli._trials import run_trials
from fedotp.errors import FedotpError

app = typer.Typer()


@app.command()
def compare(
    source: _options.SourceArgument = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Methods, separated by commas, with options after colons, for example fedotp:mass=0.9.",
            autocompletion=_complete.methods,
        ),
    ] = _options.METHODS,
    seeds: _options.SeedsOption = "0,1,2",
    splits: _options.SplitsOption = None,
    against: Annotated[str | None, typer.Option(help="Baseline method, one of --methods; default: the first.")] = None,
    controls: _options.ControlsOption = False,
    changes: _options.SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; default: runs/compare-PRESET.")] = None,
    jobs: _options.JobsOption = 1,
    quiet: _options.QuietOption = False,
) -> None:
    """Compare methods over data splits and seeds: a table of means, and of paired differences with intervals.

    Every method with every split and seed is a run below --out. If interrupted,
    the same command skips complete runs and continues. The runs of a method are
    trained side by side, as many as fit into memory, which is faster than one by
    one. The table is also saved as table.csv and table.md.

    \b
    Examples:
      fedotp compare demo
      fedotp compare demo --splits 0..5 --seeds 0,1 --against coop
      fedotp compare office --methods fedotp,promptfl --seeds 0..11
      fedotp compare --methods fedotp,fedotp:rule=classical,fedotp:rule=average
      fedotp compare --methods fedotp:reg=0.01:mass=0.9,coop:optimizer.lr=0.01
    """
    if jobs == 1:  # this process computes
        open_driver(changes or [])
    from fedotp.config import load_config
    from fedotp.runs.many import by_method

    named = methods.split(",")
    trials = by_method(
        load_config(source or _options.SOURCE),
        named,
        _options.whole_numbers(seeds, "--seeds"),
        _splits(splits),
        changes=changes or [],
        controls=controls,
    )
    words = [word.strip() for word in named]
    if against is not None and against.strip() not in words:
        raise FedotpError(f"--against {against}: must be one of --methods, with its options: {', '.join(words)}")
    reference = 0 if against is None else words.index(against.strip())
    run_trials(
        trials,
        out or Path(f"runs/compare-{Path(source or _options.SOURCE).stem}"),
        jobs,
        quiet=quiet,
        against=reference,
    )


@app.command()
def sweep(
    source: _options.SourceArgument = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="A setting and its values; repeatable, for all combinations."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, for example 0,1,2 or 0..11; default: that of the configuration.")
    ] = None,
    splits: _options.SplitsOption = None,
    changes: _options.SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; default: runs/sweep-PRESET.")] = None,
    jobs: _options.JobsOption = 1,
    quiet: _options.QuietOption = False,
) -> None:
    """Run all combinations of some settings: a table of means over splits and seeds.

    Every combination with every split and seed is a run below --out. If
    interrupted, the same command skips complete runs and continues. The first
    combination is the baseline. Seeds, splits, learning rates and other settings
    that do not change a training step are trained side by side, as many as fit
    into memory. The table is also saved as table.csv and table.md.

    \b
    Examples:
      fedotp sweep demo --grid method.mass=0.5,0.7,0.9
      fedotp sweep demo --grid method.mass=0.5,0.9 --grid optimizer.lr=0.01,0.1
      fedotp sweep cifar10 --grid partition.alpha=0.1,0.5 --seeds 0,1,2 --jobs 2
    """
    if jobs == 1:  # this process computes
        open_driver(changes or [])
    from fedotp.config import load_config
    from fedotp.runs.many import by_grid

    if not grid:
        raise FedotpError("give the settings to vary, for example --grid method.mass=0.5,0.7,0.9")
    config, changes = load_config(source or _options.SOURCE), changes or []
    drawn = [config.override(changes).seed] if seeds is None else _options.whole_numbers(seeds, "--seeds")
    trials = by_grid(config, grid, drawn, _splits(splits), changes=changes)
    run_trials(trials, out or Path(f"runs/sweep-{Path(source or _options.SOURCE).stem}"), jobs, quiet=quiet)


def _splits(text: str | None) -> list[int] | None:
    return None if text is None else _options.whole_numbers(text, "--splits")
