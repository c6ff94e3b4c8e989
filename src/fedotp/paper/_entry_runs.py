"""The runs of an entry: planned runs, their inputs, and existing runs."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedotp.clip import CONFIGS, find_weights
from fedotp.config import Config, difference
from fedotp.data import DATASETS, default_root, find_dataset
from fedotp.paper._entry import Entry, Part
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import Outcome, Trial, by_method

_REPEATED = re.compile(r"(?:,split=(\d+))?,seed=(\d+)$")  # suffix of a run's name from `by_method`
_IGNORED = re.compile(r"seed|partition\.seed|data\.(root|store)|compute\..*")  # settings that an entry does not define
_OF_THE_PAPER = (",seed=0", ",seed=1", ",seed=2")
_ROW = "row"  # the label of a trial: the paper's name of its row

Made = list[tuple[Part, list[Outcome]]]
"""The runs of an entry, by part."""


def trials_of(
    entry: Entry,
    seeds: Sequence[int],
    splits: Sequence[int] | None = None,
    *,
    changes: Sequence[str] = (),
    controls: bool = False,
) -> list[Trial]:
    """Return the trials of an entry, named by their paths below the common folder; `controls` as for `by_method`."""
    trials = []
    for part in entry.parts:
        config, labels = part.config(), part.config(changes).data.labels
        for row, method in entry.methods.items():
            for trial in by_method(config, [method], seeds, splits, changes=changes, controls=controls):
                label = row if trial.config.data.labels == labels else f"{row}, shuffled labels"
                trials.append(replace(trial, name=f"{part.folder}/{trial.name}", labels={_ROW: label}, title=label))
    return trials


def by_part(entry: Entry, outcomes: Sequence[Outcome]) -> Made:
    """Group the outcomes of `trials_of` by part."""
    parts: dict[str, list[Outcome]] = {part.folder: [] for part in entry.parts}
    for outcome in outcomes:
        parts[outcome.trial.name.partition("/")[0]].append(outcome)
    return [(part, parts[part.folder]) for part in entry.parts]


def find_made(entry: Entry, folder: Path) -> Made:
    """Find the existing and missing runs of an entry in `folder`.

    Splits and seeds are those of existing runs; without any, the paper's three seeds.
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
            for name in (stem + end for end in asked or _OF_THE_PAPER):
                directory = RunDirectory(folder / name)
                config = directory.config if directory.is_begun else trial.config  # changed by `--set`
                outcomes.append(Outcome(replace(trial, name=name, config=config), directory))
    return by_part(entry, outcomes)


def _stem(name: str) -> str:
    return _REPEATED.sub("", name)


def changed(entry: Entry, made: Made) -> list[str]:
    """Describe settings that differ from those of the entry, except paths and devices."""
    declared = {_stem(trial.name): trial.config for trial in trials_of(entry, [0], controls=True)}
    values: dict[str, dict[str, None]] = {}
    for outcome in (outcome for _, outcomes in made for outcome in outcomes if outcome.directory.is_begun):
        for key, (here, there) in difference(outcome.trial.config, declared[_stem(outcome.trial.name)]).items():
            if not _IGNORED.fullmatch(key):
                now, then = ("none" if value is None else value for value in (here, there))
                values.setdefault(key, {})[f"{now} instead of {then}"] = None
    return [f"{key} is {', '.join(words)}" for key, words in values.items()]


def data_used(made: Made) -> list[str]:
    """Describe the images of the runs, and compare their numbers with the paper's."""
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


@dataclass(frozen=True)
class Missing:
    """A missing input.

    Attributes:
        what: its description.
        files: URL of each file, and the path for the file or its contents.
        command: arguments of `fedotp` that download it; empty if it must be downloaded manually.
        advice: further instructions.
    """

    what: str
    files: tuple[tuple[str, Path], ...]
    command: tuple[str, ...]
    advice: str


def missing_inputs(configs: Iterable[Config]) -> list[Missing]:
    """Return the weights and data that are missing for runs of `configs`, without duplicates."""
    needs = list(configs)
    backbones = dict.fromkeys(config.backbone.source for config in needs)
    sets = dict.fromkeys((config.data.source, config.data.root_folder) for config in needs)
    found = [*map(_weights, backbones), *(_data(name, root) for name, root in sets)]
    return [missing for missing in found if missing is not None]


def _weights(source: str) -> Missing | None:
    if source not in CONFIGS:
        if os.path.exists(source) or os.sep not in source:
            return None  # a file, or a name for `load`
        return Missing(f"the weights {source}", (), (), "no such file; change backbone.name")
    weights = find_weights(source)
    if weights.path is not None:
        return None
    checksum = f"its SHA-256 is {weights.sha256}; " if weights.sha256 else ""
    return Missing(
        f"the weights of {source}",
        ((weights.url, weights.folder),),
        ("weights", "fetch", source),
        f"{checksum}or save the file anywhere and give --set backbone.name=FILE",
    )


def _data(name: str, root: Path | None) -> Missing | None:
    if name not in DATASETS or find_dataset(name, root) is not None:
        return None
    info, base = DATASETS[name], root or default_root()
    files = tuple((resource.url, base / resource.provides) for resource in info.resources)
    command = ("data", "download", name, *(() if root is None else ("--root", str(root)))) if files else ()
    advice = info.advice if files else f"{info.advice}; put it at {base / info.folder}"
    return Missing(f"the images of {info.title}", files, command, advice)
