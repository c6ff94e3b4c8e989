"""Run what is missing of many runs, each in a directory of its own, and where: the processes of this machine, or a
cluster (`_cluster.py`).

What is complete is kept, what was begun is resumed, what is missing is run: doing the same again does only what is
left.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from fedotp._values import require
from fedotp.config import Config, difference
from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many._together import Work, run_group, side_by_side
from fedotp.runs.many._trials import ManyObserver, Outcome, Trial, value_text
from fedotp.runs.many._workers import run_in_processes
from fedotp.runs.one import prepare
from fedotp.runs.watch import Observer

_SHOWN = 3  # differing keys named in a refusal


class Engine(Protocol):
    """Who does the work; which runs there are, and which of them are left, others know."""

    def prepare(self, configs: Sequence[Config], observer: ManyObserver) -> list[FedotpError | None]:
        """Encode what is not encoded yet; return what is wrong with the input of each."""

    def run(self, work: Sequence[Work], observer: ManyObserver) -> Generator[tuple[Trial, str]]:
        """Run or resume all of `work`; yield each trial when it ends, with what went wrong (one line, or nothing)."""


@dataclass(frozen=True)
class Local:
    """This process, or `jobs` processes of this machine, which share its cores and GPUs."""

    jobs: int = 1

    def __post_init__(self) -> None:
        require(self.jobs >= 1, "jobs", self.jobs, "1 or more")

    def prepare(self, configs: Sequence[Config], observer: ManyObserver) -> list[FedotpError | None]:
        """Here, before any process is started."""
        return [_prepared(config, observer) for config in configs]

    def run(self, work: Sequence[Work], observer: ManyObserver) -> Generator[tuple[Trial, str]]:
        """One group of runs after the other, or as many at a time as there are processes."""
        groups = side_by_side(work, self.jobs)
        return _in_turn(groups, observer) if self.jobs == 1 else run_in_processes(groups, self.jobs, observer)


def _prepared(config: Config, observer: ManyObserver) -> FedotpError | None:
    try:
        prepare(config, _Encoding(observer))
    except FedotpError as error:
        return error
    return None


class _Encoding(Observer):
    """Passes on how encoding goes."""

    def __init__(self, observer: ManyObserver) -> None:
        self.observer = observer

    def on_encoding(self, what: str, done: int, total: int) -> None:
        self.observer.on_encoding(what, done, total)


def _in_turn(groups: list[list[Work]], observer: ManyObserver) -> Generator[tuple[Trial, str]]:
    for group in groups:
        failed = set()
        with closing(run_group(group, observer.on_update, observer.on_interrupt)) as ended:
            for trial, error in ended:
                failed |= {trial.name} if error else set()
                yield trial, error
        if not all(trial.name in failed or RunDirectory(path).is_complete for trial, path in group):
            return  # interrupted


def run_many(
    trials: Sequence[Trial], parent: str | Path, *, engine: Engine | None = None, observer: ManyObserver | None = None
) -> list[Outcome]:
    """Run what is missing of `trials` below `parent`: in this process, or wherever `engine` says.

    Runs that differ in no more than seed, split, learning rate and the like go side by side, as many as fit into
    memory: their clients are trained as those of one federation. Each ends as it would alone, up to rounding.

    A run that fails does not stop the others. What all runs need (backbone, tokens) is prepared first; bad input there
    is refused before anything is written, and so is a directory that holds anything else than its trial.

    With `Local(jobs=2)`, a script needs the usual `if __name__ == "__main__":`, for its processes are spawned.
    """
    engine = engine or Local()
    observer = observer or ManyObserver()
    directories = {trial.name: RunDirectory(Path(parent) / trial.name) for trial in trials}
    for trial in trials:
        _require_own(trial, directories[trial.name])
    todo = [trial for trial in trials if not directories[trial.name].is_complete]
    _prepare_once(engine, [trial.config for trial in todo], observer)
    observer.on_begin(len(trials), len(trials) - len(todo))
    outcomes = {trial.name: Outcome(trial, directories[trial.name]) for trial in trials}
    work = [(trial, directories[trial.name].path) for trial in todo]
    with closing(engine.run(work, observer)) as ended:
        for trial, error in ended:
            outcomes[trial.name] = replace(outcomes[trial.name], error=error)
            observer.on_outcome(outcomes[trial.name])
    return list(outcomes.values())


def _prepare_once(engine: Engine, configs: Sequence[Config], observer: ManyObserver) -> None:
    """Encode what is not encoded yet. Bad input that concerns all runs is refused; a single run's is left to it."""
    needs = {
        (c.data, c.authors.of_data, c.backbone, c.partition, c.compute.device, "novel" in c.evaluation.views): c
        for c in configs
    }
    errors = engine.prepare([*needs.values()], observer)
    if len(errors) == 1 and errors[0]:
        raise errors[0]


def _require_own(trial: Trial, directory: RunDirectory) -> None:
    """Refuse a directory that holds anything but this trial, begun or complete."""
    if not (directory.path / "config.toml").is_file():
        directory.require_new()
        return
    differing = difference(directory.config, trial.config)
    if differing:
        named = [
            f"{key} is {value_text(there)} there, {value_text(here)} here" for key, (there, here) in differing.items()
        ]
        more = f", and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
        raise FedotpError(
            f"{directory.path} holds a run of another configuration: {'; '.join(named[:_SHOWN])}{more}; "
            "choose another --out"
        )
