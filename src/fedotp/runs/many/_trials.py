"""The runs of a comparison or a sweep: methods, or a grid of settings, times splits and seeds; and how one is run."""

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
        name: its directory, made of what is varied, the same whenever it is asked for again.
        labels: how it differs from the others, apart from split and seed: the first columns of a table.
        title: what to call it in a sentence, if not by its labels.
    """

    name: str
    labels: dict[str, str]
    config: Config
    title: str = ""

    @property
    def called(self) -> str:
        """What to call it in a sentence."""
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
    """Every method on every split of the data (`partition.seed`; the configuration's if None) with every seed.

    `changes`, as for `--set`, are made for all of them; what `bridge=authors` sets is each method's own. With
    `controls`, also every method that learns on shuffled labels.

    A method may carry options, each behind a colon: "fedotp:rule=classical:reg=0.01"; any other key is written with
    its section: "coop:optimizer.lr=0.01".
    """
    trials, shuffled = [], []
    common = config.override(changes)
    data = (common.data, common.partition, common.authors.of_data)
    for text in methods:
        name, *options = text.split(":")
        own = [option if "." in option.partition("=")[0] else f"method.{option}" for option in options]
        changed = _override(config, changes, [f"method.name={name}", *own], f"--methods {text}")
        if (changed.data, changed.partition, changed.authors.of_data) != data:
            raise FedotpError(f"--methods {text}: all methods are compared on the same data; use --set for all of them")
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
    """Every combination of the values of a grid, each axis written "method.mass=0.5,0.7,0.9".

    Each on every split and with every seed, and with `changes`, as by `by_method`.
    """
    config.override(changes)  # what is wrong with them is not the grid's fault
    axes: dict[str, list[str]] = {}
    for axis in grid:
        key, equals, values = axis.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise FedotpError(f"--grid {axis}: must be key=value,value,..., for example method.mass=0.5,0.7,0.9")
        if key.strip() == "seed":
            raise FedotpError(f"--grid {axis}: seeds are not an axis of the table; give them as --seeds {values}")
        if key.strip() == "partition.seed" and splits is not None:
            raise FedotpError(f"--grid {axis}: splits are not an axis of the table here; leave it out, or --splits")
        if key.strip() in axes:
            raise FedotpError(
                f"--grid {axis}: {key.strip()} has been given already; put all its values into one --grid"
            )
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
    """The keys of `changes` with the values that `config` has for them."""
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
    """On every split, with every seed. The configuration's own split is not named: a table may get others later."""
    stem, own = directory_name(parts), config.partition.seed
    trials = []
    for split in [own] if splits is None else splits:
        named = stem if split == own else f"{stem},split={split}"
        divided = replace(config, partition=replace(config.partition, seed=split))
        trials += [Trial(f"{named},seed={seed}", labels, replace(divided, seed=seed)) for seed in seeds]
    return trials


def directory_name(parts: Sequence[str]) -> str:
    """A name that any shell and file system takes; if that loses something, a digest keeps it distinct."""
    text = ",".join(parts)
    name = _UNSAFE.sub("-", text)[:_LONGEST]
    return name if name == text else f"{name}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"


def _require_distinct(trials: list[Trial]) -> list[Trial]:
    seen: set[str] = set()
    for trial in trials:
        if trial.name in seen:
            raise FedotpError(f"{trial.name} is asked for twice; leave one of them out")
        seen.add(trial.name)
    return trials


@dataclass(frozen=True)
class Update:
    """How far a run has come: after `round` of `rounds` rounds, with the last accuracy if there is one."""

    name: str
    round: int
    rounds: int
    accuracy: float | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a trial: complete, failed with an `error` (one line), or neither: interrupted or not begun."""

    trial: Trial
    directory: RunDirectory
    error: str = ""


class ManyObserver:
    """Observes many runs; does nothing. Override the events of interest."""

    def on_encoding(self, what: str, done: int, total: int) -> None:
        """Images are being hashed or encoded, once for all runs."""

    def on_begin(self, n_trials: int, n_complete: int) -> None:
        """All is prepared; so many runs were complete before."""

    def on_update(self, update: Update) -> None:
        """A run has begun, or made progress."""

    def on_outcome(self, outcome: Outcome) -> None:
        """A run has ended in one way or another."""

    def on_interrupt(self) -> None:
        """The user asked to stop; the rounds in progress are finished first."""


def run_one(
    trial: Trial,
    path: Path,
    report: Callable[[Update], object],
    on_interrupt: Callable[[], object],
    ready: Preparation | None = None,
) -> str:
    """Run or resume a trial, with what is prepared already; return what went wrong, in one line, or nothing."""
    directory = RunDirectory(path)
    try:
        config, like = begun_or_new(trial, directory)
        prepared = (ready or Preparation(config)).prepare(config, like)
        with opened(prepared, directory, Relay(trial.name, report, on_interrupt)) as (loop, _):
            loop.go()
    except Exception as error:  # even a bug, or a library's limit: the other runs must go on
        return why(error)
    return ""


def begun_or_new(trial: Trial, directory: RunDirectory) -> tuple[Config, RunDirectory | None]:
    """The configuration of a trial as its run began, and the run; or as it is to begin, and None."""
    return (directory.config, directory) if directory.is_begun else (trial.config, None)


def why(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, FedotpError):
        return str(error)
    return shortage(error) or one_line(f"{type(error).__name__}: {error}")


class Relay(Observer):
    """Makes updates of what a run reports."""

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
