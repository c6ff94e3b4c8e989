"""`fedotp run`, `evaluate`, `presets` and `config`."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedotp._system import keep_freed, open_driver
from fedotp._text import printable
from fedotp.cli import _options
from fedotp.cli.show import (
    INTERRUPTED,
    command,
    print_headline,
    print_numbers,
    print_paths,
    print_run,
    print_table,
    print_views,
)
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # importing torch takes a second, too long for `--help`
    from fedotp.config import Config
    from fedotp.data.partition import Partition
    from fedotp.federation.testing import View
    from fedotp.runs.directory import RunDirectory

app = typer.Typer()


_log = partial(typer.Option, rich_help_panel="Logs")
PartitionOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Partition saved by `fedotp data partition --out`.")
]
TensorBoardOption = Annotated[bool, _log("--tensorboard", help="Log for TensorBoard, in the run's directory.")]
WandbOption = Annotated[
    bool, _log("--wandb", help="Log for W&B, in the run's directory; to its server only with WANDB_MODE=online.")
]
MlflowOption = Annotated[
    bool, _log("--mlflow", help="Log for MLflow, in mlruns beside the run, or to MLFLOW_TRACKING_URI.")
]


@app.command()
def run(
    source: _options.SourceArgument = None,
    changes: _options.SetOption = None,
    out: _options.OutOption = None,
    partition: PartitionOption = None,
    resume: _options.ResumeOption = None,
    tensorboard: TensorBoardOption = False,
    wandb: WandbOption = False,
    mlflow: MlflowOption = False,
    quiet: _options.QuietOption = False,
    as_json: _options.JsonOption = False,
) -> None:
    """Run a federation, from images to prompts and results, in one directory.

    Ctrl-C finishes the round in progress; --resume continues from there, with
    the same result as an uninterrupted run.

    \b
    Examples:
      fedotp run
      fedotp run demo --set method.name=promptfl --set seed=1
      fedotp run office --set data.root=~/data --out runs/office
      fedotp run office --set data.root=~/data --partition office.json
      fedotp run demo --set federation.holdout_clients=1
      fedotp run --resume runs/office
      fedotp run demo --out runs/first --wandb --mlflow
      fedotp run demo --json | jq 'select(.kind == "evaluation").accuracy'
    """
    chosen = changes or []
    open_driver(chosen)
    trackers = [name for name, asked in {"TensorBoard": tensorboard, "WandB": wandb, "MLflow": mlflow}.items() if asked]
    if resume is not None:
        if source is not None or out is not None or partition is not None or chosen:
            raise FedotpError(
                "--resume uses the run's own configuration and directory: remove PRESET|FILE, --set, --out and "
                "--partition"
            )
        directory = _run(None, resume, None, trackers, quiet=quiet, as_json=as_json)
    else:
        asked = _asked(source or _options.SOURCE, chosen, out, partition)
        directory = _run(*asked, trackers, quiet=quiet, as_json=as_json)
    if as_json:
        from fedotp.cli.progress import print_json

        print_json({"kind": "summary", "run": str(directory.path), **directory.summary})
        return
    print_run(directory)
    print_views(directory.summary)
    print()
    paths = [("run", str(directory.path)), ("next", command("runs", "show", directory.path))]
    if resume is None and partition is None:
        options = [word for change in chosen for word in ("--set", change)]
        own, others = directory.config.method.name, _options.METHODS.split(",")
        methods = ",".join([own, *(other for other in others if other != own)])
        paths.append(("", command("compare", source or _options.SOURCE, "--methods", methods, *options)))
    print_paths(paths)


@app.command()
def evaluate(
    run: _options.RunArgument,
    changes: _options.SetOption = None,
    views: Annotated[
        str | None, typer.Option(metavar="VIEW,...", help="Also evaluate these views, for example base,novel,global.")
    ] = None,
    quiet: _options.QuietOption = False,
    as_json: _options.JsonOption = False,
) -> None:
    """Evaluate the prompts of a run again, optionally with other settings; nothing is written.

    \b
    Examples:
      fedotp evaluate runs/office
      fedotp evaluate runs/office --set method.mass=0.5
      fedotp evaluate runs/office --set method.dial=0.3
      fedotp evaluate runs/office --views global,base,neighbours
    """
    from fedotp.cli.progress import print_json, run_progress
    from fedotp.runs.directory import RunDirectory
    from fedotp.runs.one import evaluate_run, see_run

    chosen = changes or []
    seen: list[View] | None = None
    found: dict[str, Any] = {}
    with run_progress(quiet=quiet or as_json) as observer:
        if views is None:
            evaluation = evaluate_run(run, chosen, observer=observer)
        else:
            evaluation, seen, found = see_run(run, views.split(","), chosen, observer=observer)
    if as_json:
        more = {} if seen is None else {"views": [view.as_dict() for view in seen]}
        print_json({"run": str(run), "changes": chosen, **evaluation.as_dict(), **more})
        return
    directory = RunDirectory.open(run)
    print_headline(directory, len(evaluation.clients))
    for change in chosen:
        print(f"with {printable(change)}")
    print_numbers({"final": evaluation.totals(), "domains": evaluation.domains()})
    print_views(found)


@app.command()
def presets() -> None:
    """List the presets: configurations of the paper's experiments and of later papers' protocols.

    Example: fedotp run office --set data.root=~/data
    """
    from fedotp.config import presets as all_presets

    print_table(("preset", "description"), all_presets().items())


@app.command()
def config(source: _options.SourceOrRunArgument = None, changes: _options.SetOption = None) -> None:
    """Print the complete configuration of a future run, with an explanation of each key.

    Use it to start your own file: keys that you do not change can be removed.

    \b
    Examples:
      fedotp config demo
      fedotp config demo --set method.name=promptfl > mine.toml
      fedotp config runs/office
    """
    from fedotp.config import explained, load_config
    from fedotp.runs.directory import RunDirectory

    where = source or _options.SOURCE
    found = RunDirectory.open(where).config if Path(where).is_dir() else load_config(where)
    for line in explained(found.override(changes or [])).splitlines():
        print(printable(line))


def _asked(
    source: str, changes: list[str], out: Path | None, partition: Path | None
) -> "tuple[Config, Path, Partition | None]":
    """Return the configuration, the directory and, if given, the partition of a new run."""
    from fedotp.config import load_config
    from fedotp.data.partition import Partition
    from fedotp.runs.directory import free_name

    if partition is not None and any(change.startswith("partition.") for change in changes):
        raise FedotpError(f"--partition {partition} already defines the partition; remove --set partition.*")
    config = load_config(source).override(changes)
    divided = None if partition is None else Partition.load(partition)
    if divided is not None:
        config = replace(config, partition=divided.settings)
    return config, out or free_name(config, Path("runs")), divided


def _run(
    config: "Config | None", path: Path, divided: "Partition | None", trackers: list[str], *, quiet: bool, as_json: bool
) -> "RunDirectory":
    """Run `config` in `path`, or resume the run there; return the complete run, or exit."""
    keep_freed()
    from fedotp.cli.progress import run_progress
    from fedotp.runs import one, watch

    log = [getattr(watch, name)() for name in trackers]
    try:
        with run_progress(quiet=quiet, as_json=as_json) as progress:
            observer = watch.Observers(progress, *log)
            if config is None:
                directory = one.resume(path, observer=observer)
            else:
                directory = one.run(config, path, observer=observer, partition=divided)
    except KeyboardInterrupt:
        raise _stopped(path, "immediately, without the round in progress", as_json=as_json) from None
    if not directory.is_complete:
        raise _stopped(path, "after a complete round", as_json=as_json)
    return directory


def _stopped(path: Path, how: str, *, as_json: bool) -> typer.Exit:
    """Print how to continue; return the exit."""
    from fedotp.cli.progress import print_json, say
    from fedotp.runs.directory import RunDirectory

    if (path / "config.toml").is_file():
        done = max((record["round"] for record in RunDirectory(path).metrics("round")), default=0)
        say(f"stopped {how}; {done} of {RunDirectory(path).config.federation.rounds} rounds are done")
        say(f"continue with: {command('run', '--resume', path)}")
    else:
        done = 0
        say("stopped before the first round: no run was created; encoded images are reused")
    if as_json:
        print_json({"kind": "interrupted", "run": str(path), "round": done})
    return typer.Exit(INTERRUPTED)
