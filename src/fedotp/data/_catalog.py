"""Data sets known by name: the facts in `datasets.toml`, and their readers."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fedotp.data._box import read_box
from fedotp.data._cifar import read_cifar10, read_cifar100
from fedotp.data._dataset import Dataset
from fedotp.data._domains import read_domains
from fedotp.data._download import DatasetInfo, Resource
from fedotp.data._names import FACTS
from fedotp.data._official import read_official

_COOP = "https://github.com/KaiyangZhou/CoOp/blob/main/DATASETS.md"
_READERS = {"cifar10": read_cifar10, "cifar100": read_cifar100}


def _reader(name: str, facts: dict[str, Any]) -> Callable[[Path], Dataset]:
    """Return the reader of the layout of the data set `name`."""
    if "sha256" in facts:
        return partial(read_box, name, facts["sha256"], facts["split"])
    if "domains" in facts:
        return partial(read_domains, name)
    return _READERS.get(name) or partial(read_official, name)


def _info(name: str, facts: dict[str, Any]) -> DatasetInfo:
    n_classes, n_domains, n_train, n_test = facts["sizes"]
    in_box, advice, markers = "sha256" in facts, facts.get("advice", ""), facts.get("markers", [])
    if "list" in facts:
        markers = [*markers, file := f"split_zhou_{facts['list'][0]}.json"]
        advice = advice or f"for the paper's split put {file} next to the images: {_COOP}"
    return DatasetInfo(
        name=name,
        title=facts["title"],
        folder=facts.get("folder", ""),
        markers=tuple(markers),
        read=_reader(name, facts),
        n_classes=n_classes,
        n_train=n_train,
        n_test=n_test,
        n_domains=n_domains,
        template=facts.get("template", DatasetInfo.template),
        resources=tuple(Resource(*resource) for resource in facts.get("resources", [])),
        advice="it is included in fedotp" if in_box else advice,
        in_box=in_box,
        others=tuple(facts.get("others", [])),
    )


CATALOG = {name: _info(name, facts) for name, facts in FACTS.items()}
