"""From an entry to its runs: those to make, and those that were made."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedotp.config import Config, difference, load_config
from fedotp.data import DATASETS
from fedotp.paper._entry import Entry, Part
from fedotp.runs import Outcome, RunDirectory, Trial, by_method

_REPEATED = re.compile(r"(?:,split=(\d+))?,seed=(\d+)$")  # the end of the name of a run, as `by_method` gives it
_OF_NO_ACCOUNT = re.compile(r"seed|partition\.seed|data\.(root|store)|compute\..*")  # what an entry leaves open
_OF_THE_PAPER = (",seed=0", ",seed=1", ",seed=2")
_ROW = "row"  # the label of a trial: the paper's name of its row

Made = list[tuple[Part, list[Outcome]]]
"""The runs of an entry, part by part."""


def config_of(part: Part, changes: Sequence[str] = ()) -> Config:
    """The configuration of a part's runs, `changes` as for `--set`; method and seed are those of its preset."""
    return load_config(part.preset).override([*part.changes, *changes])


def trials_of(
    entry: Entry,
    seeds: Sequence[int],
    splits: Sequence[int] | None = None,
    *,
    changes: Sequence[str] = (),
    controls: bool = False,
) -> list[Trial]:
    """The runs of an entry, each named by its place below the folder of all entries; `controls` as for `by_method`."""
    trials = []
    for part in entry.parts:
        labels = config_of(part, changes).data.labels
        for row, method in entry.methods.items():
            config = config_of(part)
            for trial in by_method(config, [method], seeds, splits, changes=changes, controls=controls):
                label = row if trial.config.data.labels == labels else f"{row}, shuffled labels"
                trials.append(replace(trial, name=f"{part.folder}/{trial.name}", labels={_ROW: label}, title=label))
    return trials


def by_part(entry: Entry, outcomes: Sequence[Outcome]) -> Made:
    """What became of the runs of `trials_of`, part by part."""
    parts: dict[str, list[Outcome]] = {part.folder: [] for part in entry.parts}
    for outcome in outcomes:
        parts[outcome.trial.name.partition("/")[0]].append(outcome)
    return [(part, parts[part.folder]) for part in entry.parts]


def find_made(entry: Entry, folder: Path) -> Made:
    """The runs of an entry that are in `folder`, begun or complete, and those that are missing beside them.

    Which splits and seeds were asked for is seen from the runs that are there; where none are, they are the
    paper's three seeds.
    """
    declared = {_stem(trial.name): trial for trial in trials_of(entry, [0], controls=True)}
    asked: dict[str, None] = {}  # the ends of names: splits and seeds
    shuffled = False
    for path in sorted(folder.glob("*/*,seed=*")):
        name = f"{path.parent.name}/{path.name}"
        if (stem := _stem(name)) in declared:
            asked[name.removeprefix(stem)] = None
            shuffled |= declared[stem].config.data.labels == "shuffled"
    outcomes = []
    for stem, trial in declared.items():
        if shuffled or trial.config.data.labels != "shuffled":
            outcomes += [_found(trial, folder, stem + end) for end in asked or _OF_THE_PAPER]
    return by_part(entry, outcomes)


def _found(trial: Trial, folder: Path, name: str) -> Outcome:
    """A trial as its run was made, where there is one: `--set` may have changed its configuration."""
    directory = RunDirectory(folder / name)
    config = directory.config if directory.is_begun else trial.config
    return Outcome(replace(trial, name=name, config=config), directory)


def _stem(name: str) -> str:
    return _REPEATED.sub("", name)


def changed(entry: Entry, made: Made) -> list[str]:
    """What was set otherwise than the entry says, in words; where images and runs are is nobody's concern."""
    declared = {_stem(trial.name): trial.config for trial in trials_of(entry, [0], controls=True)}
    values: dict[str, dict[str, None]] = {}
    for outcome in (outcome for _, outcomes in made for outcome in outcomes if outcome.directory.is_begun):
        for key, (here, there) in difference(outcome.trial.config, declared[_stem(outcome.trial.name)]).items():
            if not _OF_NO_ACCOUNT.fullmatch(key):
                values.setdefault(key, {})[f"{_shown(here)} instead of {_shown(there)}"] = None
    return [f"{key} is {', '.join(words)}" for key, words in values.items()]


def data_used(made: Made) -> list[str]:
    """Which images the runs had, in words, and whether they are as many as the paper's."""
    used: dict[str, None] = {}
    for part, outcomes in made:
        for outcome in (outcome for outcome in outcomes if outcome.directory.is_begun):
            data = outcome.directory.manifest["data"]
            used[f"{part.dataset}: {_images(data)}; split: {data['split']}."] = None
    return list(used)


def _images(data: Mapping[str, Any]) -> str:
    n_train, n_test, known = data["train_images"], data["test_images"], DATASETS.get(data["name"])
    there = f"{n_train:,} training and {n_test:,} test images"
    if known is None:
        return f"{there} of other data"
    if (n_train, n_test) == (known.n_train, known.n_test):
        return f"{there}, as many as in the paper"
    return f"{there}, in the paper {known.n_train:,} and {known.n_test:,}"


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
