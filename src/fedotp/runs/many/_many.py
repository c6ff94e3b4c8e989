"""Many runs, each in its own directory, made by the processes of this machine or by a cluster (`_cluster.py`).

Complete runs are kept, those that were begun are resumed, the others are run: the same call again does only the rest.
"""

from collections.abc import Generator, Hashable, Sequence
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
from fedotp.runs.one import Preparation
from fedotp.runs.watch import Observer

_SHOWN = 3  # differing keys named in a refusal


class Engine(Protocol):
    """Where runs are made; `run_many` decides which runs are left to make."""

    def prepare(self, configs: Sequence[Config], observer: ManyObserver) -> list[FedotpError | Preparation | None]:
        """Encode what is not encoded yet; return for each what is wrong with its input, or what is ready in memory."""

    def run(
        self, work: Sequence[Work], observer: ManyObserver, ready: Preparation | None
    ) -> Generator[tuple[Trial, str]]:
        """Run or resume all of `work`; yield each trial when it ends, with what went wrong (one line, or nothing).

        `ready` is what `prepare` returned, if it is the same for all runs.
        """


@dataclass(frozen=True)
class Local:
    """This process, or `jobs` processes of this machine, which share its cores and GPUs."""

    jobs: int = 1

    def __post_init__(self) -> None:
        require(self.jobs >= 1, "jobs", self.jobs, "1 or more")

    def prepare(self, configs: Sequence[Config], observer: ManyObserver) -> list[FedotpError | Preparation | None]:
        """In this process, before any other is started; runs on the same data with the same backbone share it."""
        relay = _Encoding(observer)
        made: dict[Hashable, Preparation] = {}
        found: list[FedotpError | Preparation | None] = []
        for config in configs:
            key = config.data, config.authors.of_data, config.backbone, config.compute.device
            try:
                if key not in made:
                    made[key] = Preparation(config, relay)
                made[key].prepare(config)
                found.append(made[key])
            except FedotpError as error:
                found.append(error)
        relay.observer = ManyObserver()  # from here on, the display shows the runs
        return found

    def run(
        self, work: Sequence[Work], observer: ManyObserver, ready: Preparation | None
    ) -> Generator[tuple[Trial, str]]:
        """One group of runs after the other, or as many at a time as there are processes."""
        groups = side_by_side(work, self.jobs)
        return _in_turn(groups, observer, ready) if self.jobs == 1 else run_in_processes(groups, self.jobs, observer)


class _Encoding(Observer):
    """Passes on the progress of encoding."""

    def __init__(self, observer: ManyObserver) -> None:
        self.observer = observer

    def on_encoding(self, what: str, done: int, total: int) -> None:
        self.observer.on_encoding(what, done, total)


def _in_turn(
    groups: list[list[Work]], observer: ManyObserver, ready: Preparation | None
) -> Generator[tuple[Trial, str]]:
    for group in groups:
        failed = set()
        with closing(run_group(group, observer.on_update, observer.on_interrupt, ready)) as ended:
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
    ready = _prepare_once(engine, [trial.config for trial in todo], observer)
    observer.on_begin(len(trials), len(trials) - len(todo))
    outcomes = {trial.name: Outcome(trial, directories[trial.name]) for trial in trials}
    work = [(trial, directories[trial.name].path) for trial in todo]
    with closing(engine.run(work, observer, ready)) as ended:
        for trial, error in ended:
            outcomes[trial.name] = replace(outcomes[trial.name], error=error)
            observer.on_outcome(outcomes[trial.name])
    return list(outcomes.values())


def _prepare_once(engine: Engine, configs: Sequence[Config], observer: ManyObserver) -> Preparation | None:
    """Encode what is not encoded yet; return what is ready for all runs, if it is the same for all.

    Bad input that concerns all runs is refused; that of a single run is left to it.
    """
    needs = {
        (c.data, c.authors.of_data, c.backbone, c.partition, c.compute.device, "novel" in c.evaluation.views): c
        for c in configs
    }
    found = engine.prepare([*needs.values()], observer)
    if len(found) == 1 and isinstance(found[0], FedotpError):
        raise found[0]
    first = found[0] if found else None
    return first if isinstance(first, Preparation) and all(one is first for one in found) else None


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
