"""Registry and loading of data sets by name, folder, table or Hugging Face path."""

import os
from collections.abc import Callable
from functools import partial
from importlib import resources
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Literal

from fedotp._files import cache_folder
from fedotp._imports import bring, import_named, offered, origin, package_of, source_of
from fedotp._text import one_line
from fedotp.data._box import read_box
from fedotp.data._cifar import read_cifar10, read_cifar100
from fedotp.data._dataset import Dataset
from fedotp.data._domains import read_domains
from fedotp.data._download import DatasetInfo, Resource
from fedotp.data._folder import read_folder
from fedotp.data._names import FACTS
from fedotp.data._official import read_listed, read_official, zhou_lists
from fedotp.data._tables import read_csv, read_hf
from fedotp.errors import FedotpError, nearest

_COOP = "https://github.com/KaiyangZhou/CoOp/blob/main/DATASETS.md"
_READERS = {"cifar10": read_cifar10, "cifar100": read_cifar100}


def _info(name: str, facts: dict[str, Any]) -> DatasetInfo:
    n_classes, n_domains, n_train, n_test = facts["sizes"]
    in_box, advice, markers = "sha256" in facts, facts.get("advice", ""), facts.get("markers", [])
    if "list" in facts:
        markers = [*markers, file := f"split_zhou_{facts['list'][0]}.json"]
        advice = advice or f"for the paper's split put {file} next to the images: {_COOP}"
    read: Callable[[Path], Dataset] = _READERS.get(name) or partial(read_official, name)
    if in_box or "domains" in facts:
        read = partial(read_box, name, facts["sha256"], facts["split"]) if in_box else partial(read_domains, name)
    return DatasetInfo(
        name=name,
        title=facts["title"],
        folder=facts.get("folder", ""),
        markers=tuple(markers),
        read=read,
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


DATASETS = {name: _info(name, facts) for name, facts in FACTS.items()}
"""Data sets by name: those of the paper and of later papers, the two bundled ones, and external ones."""

_HF_PREFIX = "hf:"


def default_root() -> Path:
    """Return the default folder of data sets: `$FEDOTP_CACHE/data`, else `fedotp/data` in the user's cache."""
    return cache_folder() / "data"


GROUP = "fedotp.datasets"
"""Group of entry points of data sets in installed packages: `name = "package.module:INFO"`, a `DatasetInfo`."""

_brought: dict[str, EntryPoint] = {}


def bring_datasets() -> None:
    """Import all data sets of `--import` files and of installed packages."""
    import_named()
    for name in offered(GROUP):
        _bring(name)


def _bring(name: str) -> None:
    """Import the data set of this name if an installed package provides it."""
    if name not in DATASETS and (brought := bring(GROUP, name, "data set")):
        info, entry = brought
        if not isinstance(info, DatasetInfo) or info.name != name:
            got = f"the name {info.name!r}" if isinstance(info, DatasetInfo) else one_line(repr(info), 80)
            raise FedotpError(f"the data set {name} of {package_of(entry)} must be a DatasetInfo {name!r}, got {got}")
        DATASETS[name], _brought[name] = info, entry


def origin_of_dataset(name: str) -> dict[str, str]:
    """Return the origin of an external data set for records: package, module, file and its SHA-256."""
    info = DATASETS.get(name)
    module = getattr(info.read, "__module__", "") if info else "fedotp."
    return {} if module.startswith(("fedotp.", "functools")) else origin(_brought.get(name)) | source_of(module)


def dataset_info(name: str) -> DatasetInfo:
    """Return the facts of the data set `name`."""
    import_named()
    _bring(name)
    if name not in DATASETS:
        meant = f"; did you mean {near!r}?" if (near := nearest(name, DATASETS)) else ""
        known = ", ".join(DATASETS)
        raise FedotpError(f"{name!r} is neither a known data set nor a folder{meant} (data sets: {known})")
    return DATASETS[name]


def find_dataset(name: str, root: Path | None = None) -> Path | None:
    """Return the folder of the data set `name`: below `root`, or `root` itself; for bundled data the archive."""
    info = dataset_info(name)
    if info.in_box:
        return Path(str(resources.files("fedotp.data") / "box" / f"{name}.zip"))
    base = root or default_root()
    places = (*(base / folder for folder in (info.folder, name, *info.others)), base)
    return next((place for place in places if info.is_at(place)), None)


def load_dataset(
    name: str | Path, *, root: Path | None = None, groups: str = "", test_split: Literal["test", "val"] = "test"
) -> Dataset:
    """Read a data set.

    `name` is one of `DATASETS`, below `root` unless it is bundled; or a folder, whose layout is recognised (one of
    `DATASETS`, else a list `split_zhou_*.json`, else a tree of class folders); or `folder` to read `root` always as a
    tree of class folders; or a CSV table of images with paths relative to `root` or its own folder; or `hf:<path>` for
    the Hugging Face hub.

    `groups` is a regular expression on image names that defines groups, for example patients, which are not split.
    With `test_split` "val" the validation images replace the test images and are excluded from training.
    """
    import_named()
    _bring(str(name))
    dataset = _read(str(name), root, groups)
    dataset = dataset.grouped(groups) if groups and not dataset.groups else dataset
    return dataset.on_validation() if test_split == "val" else dataset


def _read(text: str, root: Path | None, groups: str) -> Dataset:
    if text.lower().endswith(".csv"):
        return read_csv(Path(text), root=root, groups=groups)
    if text.startswith(_HF_PREFIX):
        return read_hf(text.removeprefix(_HF_PREFIX))
    if text == "folder":
        if root is None:
            raise FedotpError("the data set 'folder' needs a root: the folder with the class folders")
        return read_folder(root, groups=groups)
    if text not in DATASETS and os.path.isdir(text):  # False for a name that is too long for a path
        folder = Path(text)
        known = next((info for info in DATASETS.values() if info.is_at(folder)), None)
        if known is not None:
            return known.read(folder)
        return read_listed(folder) if zhou_lists(folder) else _read_tree(folder, groups)
    if text not in DATASETS and (len(Path(text).parts) > 1 or os.path.isfile(text)):
        raise FedotpError(f"{text} is a file" if os.path.isfile(text) else f"the folder {text} does not exist")
    info = dataset_info(text)
    place = find_dataset(text, root)
    if place is None:
        expected = (root or default_root()) / info.folder
        there = "" if root is None else f" --root {root}"
        how = f"run `fedotp data download {text}{there}`" if info.resources else info.advice
        raise FedotpError(f"cannot find {info.title} in {expected} (it has no {info.markers[0]}); {how}")
    return info.read(place)


def _read_tree(folder: Path, groups: str) -> Dataset:
    """Read a tree of class folders, except a known data set without its lists: its images are in one folder."""
    dataset = read_folder(folder, groups=groups)
    name = folder.resolve().name
    known = next((info for info in DATASETS.values() if name in (info.name, info.folder, *info.others)), None)
    if known is not None and len(dataset.classes) == 1:
        raise FedotpError(
            f"{folder} has the name of {known.title}, but {' or '.join(known.markers)} is missing; "
            f"without it all images would have the class {dataset.classes[0]!r}"
        )
    return dataset
