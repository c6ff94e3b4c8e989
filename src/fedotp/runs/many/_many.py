"""Execution of many runs, each in its own directory. Complete runs are skipped, incomplete ones resumed."""

from collections.abc import Generator, Hashable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fedotp._values import require
from fedotp.config import Config, difference
from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many._together import Work, run_group, side_by_side
from fedotp.runs.many._trials import ManyObserver, Outcome, Trial, value_text
from fedotp.runs.many._workers import run_in_processes
from fedotp.runs.one import Preparation

_SHOWN = 3  # differing keys named in an error message


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
    trials: Sequence[Trial], parent: str | Path, *, jobs: int = 1, observer: ManyObserver | None = None
) -> list[Outcome]:
    """Run missing `trials` below `parent`, in this process or in `jobs` processes that share its cores and GPUs.

    Runs that differ only in seed, split, learning rate and the like are trained side by side, as many as fit into
    memory, like the clients of one federation. Each result is that of a single run, up to rounding.

    A failed run does not stop the others. Shared inputs (backbone, tokens) are prepared and directories are checked
    before anything is written.

    With `jobs=2`, a script needs `if __name__ == "__main__":`, since its processes are spawned.
    """
    require(jobs >= 1, "jobs", jobs, "1 or more")
    observer = observer or ManyObserver()
    directories = {trial.name: RunDirectory(Path(parent) / trial.name) for trial in trials}
    for trial in trials:
        _require_own(trial, directories[trial.name])
    todo = [trial for trial in trials if not directories[trial.name].is_complete]
    ready = _prepare_once([trial.config for trial in todo], observer)
    observer.on_begin(len(trials), len(trials) - len(todo))
    outcomes = {trial.name: Outcome(trial, directories[trial.name]) for trial in trials}
    groups = side_by_side([(trial, directories[trial.name].path) for trial in todo], jobs)
    running = _in_turn(groups, observer, ready) if jobs == 1 else run_in_processes(groups, jobs, observer)
    with closing(running) as ended:
        for trial, error in ended:
            outcomes[trial.name] = replace(outcomes[trial.name], error=error)
            observer.on_outcome(outcomes[trial.name])
    return list(outcomes.values())


def _prepare_once(configs: Sequence[Config], observer: ManyObserver) -> Preparation | None:
    """Encode missing tokens in this process; return the preparation of all runs if it is the same for all.

    Runs on the same data with the same backbone share it. Errors that concern all runs are raised; those of a single
    run are left to it.
    """
    needs = {
        (c.data, c.authors.of_data, c.backbone, c.partition, c.compute.device, "novel" in c.evaluation.views): c
        for c in configs
    }
    made: dict[Hashable, Preparation] = {}
    errors = []
    for config in needs.values():
        key = config.data, config.authors.of_data, config.backbone, config.compute.device
        try:
            if key not in made:
                made[key] = Preparation(config, observer.on_encoding)
            made[key].prepare(config)
        except FedotpError as error:
            errors.append(error)
    for preparation in made.values():
        preparation.on_encoding = None  # from here on, the display shows the runs
    if len(needs) == 1 and errors:
        raise errors[0]
    return next(iter(made.values())) if len(made) == 1 and not errors else None


def _require_own(trial: Trial, directory: RunDirectory) -> None:
    """Raise an error unless the directory is new or contains this trial."""
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
            f"{directory.path} is a run of another configuration: {'; '.join(named[:_SHOWN])}{more}; "
            "choose another --out"
        )
