"""The runs of a comparison or sweep: methods or a grid of settings, times splits and seeds; execution of one run."""

import hashlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedotp._system import shortage
from fedotp._text import one_line
from fedotp._values import Value, show
from fedotp.config import Config, flatten
from fedotp.errors import FedotpError
from fedotp.federation import RoundReport
from fedotp.federation.testing import Evaluation
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import Preparation, opened
from fedotp.runs.watch import Observer

_UNSAFE = re.compile(r"[^A-Za-z0-9.,=+_-]")  # in the name of a directory
_LONGEST = 120


@dataclass(frozen=True)
class Trial:
    """One run of many.

    Attributes:
        name: its directory, derived deterministically from the varied settings.
        labels: its varied settings except split and seed: the first columns of a table.
        title: its name in sentences, if not given by its labels.
    """

    name: str
    labels: dict[str, str]
    config: Config
    title: str = ""

    @property
    def called(self) -> str:
        """Its name in sentences."""
        (first, *others), values = self.labels, list(self.labels.values())
        if self.title or (not others and "." not in first):
            return self.title or values[0]
        return ", ".join(f"{key}={value}" for key, value in self.labels.items())


def by_method(
    config: Config,
    methods: Sequence[str],
    seeds: Sequence[int],
    splits: Sequence[int] | None = None,
    *,
    changes: Sequence[str] = (),
    controls: bool = False,
) -> list[Trial]:
    """Return every method on every split (`partition.seed`; default: the configuration's) with every seed.

    `changes`, as for `--set`, apply to all of them; `bridge=authors` is resolved for each method. With `controls`, also
    every trainable method on shuffled labels. Options of a method follow after colons:
    "fedotp:rule=classical:reg=0.01"; other keys need their section: "coop:optimizer.lr=0.01".
    """
    trials, shuffled = [], []
    common = config.override(changes)
    data = (common.data, common.partition, common.authors.of_data)
    for text in methods:
        name, *options = text.split(":")
        own = [option if "." in option.partition("=")[0] else f"method.{option}" for option in options]
        changed = _override(config, changes, [f"method.name={name}", *own], f"--methods {text}")
        if (changed.data, changed.partition, changed.authors.of_data) != data:
            raise FedotpError(f"--methods {text}: all methods must have the same data; change them with --set")
        values = _values(changed, own)
        label = ", ".join([changed.method.title, *(f"{key.removeprefix('method.')}={v}" for key, v in values.items())])
        parts = [name.strip(), *(f"{key.removeprefix('method.')}={value}" for key, value in values.items())]
        trials += _repeated(changed, splits, seeds, parts, {"method": label})
        if controls and changed.method.learns:
            control = replace(changed, data=replace(changed.data, labels="shuffled"))
            parts.append("labels=shuffled")
            shuffled += _repeated(control, splits, seeds, parts, {"method": f"{label}, shuffled labels"})
    return _require_distinct([*trials, *shuffled])


def by_grid(
    config: Config,
    grid: Sequence[str],
    seeds: Sequence[int],
    splits: Sequence[int] | None = None,
    *,
    changes: Sequence[str] = (),
) -> list[Trial]:
    """Return all combinations of the values of a grid; an axis is written "method.mass=0.5,0.7,0.9".

    Splits, seeds and `changes` are as for `by_method`.
    """
    config.override(changes)  # raises their errors without naming the grid
    axes: dict[str, list[str]] = {}
    for axis in grid:
        key, equals, values = axis.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise FedotpError(f"--grid {axis}: must be key=value,value,..., for example method.mass=0.5,0.7,0.9")
        if key.strip() == "seed":
            raise FedotpError(f"--grid {axis}: seeds are not an axis of the table; use --seeds {values}")
        if key.strip() == "partition.seed" and splits is not None:
            raise FedotpError(f"--grid {axis}: cannot be combined with --splits; remove one of them")
        if key.strip() in axes:
            raise FedotpError(f"--grid {axis}: {key.strip()} is given twice; put all its values into one --grid")
        axes[key.strip()] = values.split(",")
    trials = []
    for point in itertools.product(*axes.values()):
        own = [f"{key}={value}" for key, value in zip(axes, point, strict=True)]
        changed = _override(config, changes, own, f"--grid {' '.join(own)}")
        values_ = _values(changed, own)
        parts = [f"{key}={value}" for key, value in values_.items()]
        trials += _repeated(changed, splits, seeds, parts, values_)
    return _require_distinct(trials)


def _override(config: Config, changes: Sequence[str], own: list[str], where: str) -> Config:
    try:
        return config.override(changes, own)
    except FedotpError as error:
        raise FedotpError(f"{where}: {str(error).removeprefix('--set: ')}") from None


def _values(config: Config, changes: Sequence[str]) -> dict[str, str]:
    """Return the keys of `changes` with their values in `config`."""
    flat = flatten(config)
    keys = [change.partition("=")[0].strip() for change in changes]
    return {key: value_text(flat[key]) for key in keys}


def value_text(value: Value) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return value if isinstance(value, str) else "none" if value is None else show(value)


def _repeated(
    config: Config, splits: Sequence[int] | None, seeds: Sequence[int], parts: Sequence[str], labels: dict[str, str]
) -> list[Trial]:
    """Return a trial for every split and seed. Names omit the configuration's split, so that splits can be added."""
    stem, own = directory_name(parts), config.partition.seed
    trials = []
    for split in [own] if splits is None else splits:
        named = stem if split == own else f"{stem},split={split}"
        divided = replace(config, partition=replace(config.partition, seed=split))
        trials += [Trial(f"{named},seed={seed}", labels, replace(divided, seed=seed)) for seed in seeds]
    return trials


def directory_name(parts: Sequence[str]) -> str:
    """Return a portable name; if characters are lost, a digest keeps it distinct."""
    text = ",".join(parts)
    name = _UNSAFE.sub("-", text)[:_LONGEST]
    return name if name == text else f"{name}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"


def _require_distinct(trials: list[Trial]) -> list[Trial]:
    seen: set[str] = set()
    for trial in trials:
        if trial.name in seen:
            raise FedotpError(f"{trial.name} is given twice; remove one of them")
        seen.add(trial.name)
    return trials


@dataclass(frozen=True)
class Update:
    """Progress of a run: `round` of `rounds` rounds are done, with the last accuracy if there is one."""

    name: str
    round: int
    rounds: int
    accuracy: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Outcome of a trial: complete, failed with an `error` (one line), or interrupted or not started."""

    trial: Trial
    directory: RunDirectory
    error: str = ""


class ManyObserver:
    """Base class for observers of many runs; override the events of interest."""

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """Handle progress of hashing or encoding images, once for all runs."""

    def on_begin(self, n_trials: int, n_complete: int) -> None:
        """Handle the start of all runs, `n_complete` of which are complete."""

    def on_update(self, update: Update) -> None:
        """Handle the start or progress of a run."""

    def on_outcome(self, outcome: Outcome) -> None:
        """Handle the end of a run."""

    def on_interrupt(self) -> None:
        """Handle Ctrl-C; the rounds in progress are finished first."""


def run_one(
    trial: Trial,
    path: Path,
    report: Callable[[Update], object],
    on_interrupt: Callable[[], object],
    ready: Preparation | None = None,
) -> str:
    """Run or resume a trial; return its error in one line, or ""."""
    directory = RunDirectory(path)
    try:
        config, like = begun_or_new(trial, directory)
        prepared = (ready or Preparation(config)).prepare(config, like)
        with opened(prepared, directory, Relay(trial.name, report, on_interrupt)) as (loop, _):
            loop.go()
    except Exception as error:  # even a bug must not stop the other runs
        return why(error)
    return ""


def begun_or_new(trial: Trial, directory: RunDirectory) -> tuple[Config, RunDirectory | None]:
    """Return the configuration of a trial and, if it exists already, its run."""
    return (directory.config, directory) if directory.is_begun else (trial.config, None)


def why(error: Exception) -> str:
    """Return an error in one line."""
    if isinstance(error, FedotpError):
        return str(error)
    return shortage(error) or one_line(f"{type(error).__name__}: {error}")


class Relay(Observer):
    """Observer of a run that reports updates."""

    def __init__(
        self, name: str, report: Callable[[Update], object], on_interrupt: Callable[[], object] = lambda: None
    ) -> None:
        self.update = Update(name, 0, 0)
        self.report = report
        self.interrupted = on_interrupt

    def on_start(self, path: Path, config: Config, *, round_: int, images_per_round: int) -> None:
        self._report(round=round_, rounds=config.federation.rounds if images_per_round else 0)

    def on_round(self, report: RoundReport) -> None:
        self._report(round=report.round)

    def on_evaluation(self, round_: int, evaluation: Evaluation) -> None:
        self._report(accuracy=evaluation.mean)

    def on_interrupt(self) -> None:
        self.interrupted()

    def _report(self, **changes: float) -> None:
        self.update = replace(self.update, **changes)  # type: ignore[arg-type]  # the fields' own types
        self.report(self.update)
