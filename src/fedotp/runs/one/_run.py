"""Functions to run a federation, resume it, and evaluate it again."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedotp.config import Config
from fedotp.data.partition import Partition
from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint, Progress, Simulator, n_threads, using_threads
from fedotp.federation.testing import Evaluation, View
from fedotp.runs.directory import RunDirectory, free_name, summary_of_views
from fedotp.runs.one._loop import Loop
from fedotp.runs.one._manifest import make_manifest
from fedotp.runs.one._prepare import Prepared, prepare
from fedotp.runs.watch import Observer, watched


def run(
    config: Config,
    out: str | Path | None = None,
    *,
    observer: Observer | None = None,
    partition: Partition | None = None,
    progress: bool | None = None,
) -> RunDirectory:
    """Run the federation described by `config` in the new directory `out` (default: below `runs/`).

    `partition` is a saved partition of the same data, whose settings replace those of `config`. `progress` shows a bar;
    by default in notebooks and terminals, unless an `observer` is given.

    Returns the directory; its `is_complete` is False if the run was interrupted.

    Examples:
        >>> import fedotp                                                            # doctest: +SKIP
        >>> done = fedotp.run(fedotp.load_config("demo").override(["seed=1"]))       # doctest: +SKIP
        >>> done.summary["final"]["accuracy"]                                        # doctest: +SKIP
    """
    config = config.resolved
    if partition is not None:
        config = replace(config, partition=partition.settings)
    directory = RunDirectory(out or free_name(config, Path("runs")))
    directory.require_new()
    with watched(observer, progress) as watcher:
        prepared = prepare(config, watcher, partition=partition)
        with opened(prepared, directory, watcher) as (loop, _):
            loop.go()
    return directory


def resume(path: str | Path, *, observer: Observer | None = None, progress: bool | None = None) -> RunDirectory:
    """Resume the run in `path`, if it is not complete, with the same number of threads.

    The result is bit-equal to that of an uninterrupted run. `observer` and `progress` as for `run`.
    """
    directory = RunDirectory.open(path)
    with directory.locked(), watched(observer, progress) as watcher:
        if directory.is_complete:
            return directory
        if directory.is_deployed:
            raise FedotpError(f"{path} is a run of real sites; resume it with `{directory.resume_command}`")
        prepared = prepare(directory.config, watcher, directory)
        with using_threads(_threads_of(directory, prepared)):
            _rest(prepared, directory, make_simulator(prepared, directory), watcher).go()
    return directory


def _threads_of(directory: RunDirectory, prepared: Prepared) -> int:
    """Return the number of threads of an existing or new run."""
    if not directory.is_begun:
        return n_threads(prepared.config.compute, prepared.task)
    with directory.reading():
        return n_threads(replace(prepared.config.compute, threads=directory.manifest["threads"]), prepared.task)


@contextmanager
def opened(
    prepared: Prepared, directory: RunDirectory, observer: Observer, *, alone: bool = True
) -> Iterator[tuple[Loop, Simulator]]:
    """Create or open a run, locked by this process; yield its remaining rounds and its federation.

    A run that goes `alone` uses its original number of threads; others share the current ones.
    """
    with using_threads(_threads_of(directory, prepared)) if alone else nullcontext():
        simulator = make_simulator(prepared, directory)  # raises errors before anything is written
        if not directory.is_begun:
            directory.create(prepared.config, make_manifest(prepared), prepared.partition)
        with directory.locked():
            yield _rest(prepared, directory, simulator, observer), simulator


def _rest(prepared: Prepared, directory: RunDirectory, simulator: Simulator, observer: Observer) -> Loop:
    """Return the remaining rounds of a locked run."""
    directory.require_same_code(prepared.config.method)
    progress = Progress(group_size=simulator.group_size)
    if directory.checkpoint.is_file():
        progress = Checkpoint.read(directory.checkpoint).restore(simulator)
    directory.cut_metrics(progress.metrics_bytes, progress.metrics_digest)
    return Loop(prepared.config, directory, simulator, progress, observer)


def make_simulator(prepared: Prepared, directory: RunDirectory) -> Simulator:
    """Make the federation of a run, with private parameters stored in the run's directory."""
    config = prepared.config
    return Simulator(
        config.method,
        prepared.task,
        prepared.data,
        config.settings,
        novel=prepared.novel,
        backdoor=prepared.backdoor,
        kept_in=directory.kept,
    )


def restore(
    path: str | Path, changes: Sequence[str] = (), *, observer: Observer | None = None
) -> tuple[Prepared, Simulator]:
    """Restore the federation of the run in `path` with `changes` such as "method.mass=0.5", without writing anything.

    `changes` must not change the shape of the prompts.
    """
    directory = RunDirectory.open(path)
    if directory.is_deployed:
        raise FedotpError(f"{path} is a run of real sites: their images and private prompts are not available here")
    config = directory.config.override(list(changes))
    recorded = directory.config
    if (config.partition, config.authors.partition) != (recorded.partition, recorded.authors.partition):
        raise FedotpError(f"{path}: a run is evaluated on its own partition; remove --set partition.*")
    prepared = prepare(config, observer, directory)
    if not directory.checkpoint.is_file():
        raise FedotpError(f"{path} has no checkpoint yet; resume it with `{directory.resume_command}`")
    simulator = make_simulator(prepared, directory)
    Checkpoint.read(directory.checkpoint).restore(simulator)
    return prepared, simulator


def evaluate_run(path: str | Path, changes: Sequence[str] = (), *, observer: Observer | None = None) -> Evaluation:
    """Evaluate the clients of the run in `path` again, with `changes` as for `restore`.

    For a run of real sites, return the last reported evaluation; `changes` are not supported.
    """
    directory = RunDirectory.open(path)
    if directory.is_deployed and not changes:
        last = max(directory.metrics("evaluation"), key=lambda record: record["round"], default=None)
        if last is None:
            raise FedotpError(f"{path}: no site has reported an evaluation")
        return Evaluation.from_dict(last)
    _require_effect(directory, changes)
    return restore(path, changes, observer=observer)[1].evaluate()[0]


def see_run(
    path: str | Path, views: Sequence[str], changes: Sequence[str] = (), *, observer: Observer | None = None
) -> tuple[Evaluation, list[View], dict[str, Any]]:
    """Evaluate the run in `path` again, also in these views, with `changes` as for `restore`.

    Returns the clients' own tests, the other views, and their summary.
    """
    directory = RunDirectory.open(path)
    if "holdout" not in views:  # joining clients are trained
        _require_effect(directory, changes)
    if directory.is_deployed:
        raise FedotpError(f"{path} is a run of real sites: views are unsupported, since each has only its own images")
    _, simulator = restore(path, [*changes, f"evaluation.views={','.join(views)}"], observer=observer)
    evaluation, _ = simulator.evaluate()
    seen = simulator.see()
    now = {"round": simulator.round}
    records = [{**now, **view.as_dict()} for view in seen]
    found = summary_of_views([{**now, **evaluation.as_dict()}], records, simulator.names)
    return evaluation, seen, {**found, "missing_views": simulator.tests.missing}


_ROUNDS = ("rounds", "local_epochs", "drop_last", "dropout", "min_clients")
_AUTHORS = ("authors.leaked_momentum", "authors.schedule_rounds")
_TRAINING = ("optimizer.", "server.", "privacy.", *_AUTHORS, *(f"federation.{key}" for key in _ROUNDS))


def _require_effect(run: RunDirectory, changes: Sequence[str]) -> None:
    """Raise an error for changes that affect only training, if the evaluation does not train."""
    keys = [change.partition("=")[0].strip() for change in changes]
    idle = [key for key in keys if key.startswith(_TRAINING)]
    if idle and run.config.override(list(changes)).method.finetune_epochs == 0:
        raise FedotpError(
            f"--set {', '.join(idle)}: has no effect on an evaluation; set only method.*, evaluation.* and compute.*"
        )
