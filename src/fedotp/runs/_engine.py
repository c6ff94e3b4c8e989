"""Where many runs go: the processes of this machine, or a cluster (`cluster/_engine.py`)."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from fedotp._ranges import require
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.runs._directory import RunDirectory
from fedotp.runs._observer import Observer
from fedotp.runs._prepare import prepare
from fedotp.runs._together import Work, run_group, side_by_side
from fedotp.runs._trial_run import ManyObserver
from fedotp.runs._trials import Trial
from fedotp.runs._workers import run_in_processes


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
