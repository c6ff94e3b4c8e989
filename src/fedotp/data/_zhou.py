"""CoOp's lists of images, `split_zhou_<name>.json`: `{train|val|test: [[path, label, class name], ...]}`.

Validation images are skipped, as in the paper, unless they replace the test images.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedotp.data._dataset import Dataset
from fedotp.data._image_files import Item, file_dataset, list_folders, relative
from fedotp.data._lists import read_json
from fedotp.errors import FedotpError, listed

_TRIED = 100  # images searched for in every folder


class Found(NamedTuple):
    """Contents of a list: class names, images, note on the split; `validation` may be a part of `train`."""

    classes: Sequence[str]
    train: Sequence[Item]
    test: Sequence[Item]
    split_note: str
    validation: Sequence[Item] = ()


def zhou_lists(root: Path) -> list[Path]:
    """Return the lists in the folder `root`."""
    return sorted(root.glob("split_zhou_*.json"))


def read_listed(root: Path) -> Dataset:
    """Read any data set with one of CoOp's lists in its folder; images are there or in one of its folders."""
    path, *more = zhou_lists(root)
    if more:
        raise FedotpError(f"{root} has several lists, {listed([p.name for p in (path, *more)])}; keep only one")
    found = read_zhou(path)
    images = _image_folder(root, found.train)
    train, test, validation = (
        [(f"{images}{path}", label, domain) for path, label, domain in items]
        for items in (found.train, found.test, found.validation)
    )
    found = found._replace(train=train, test=test, validation=validation)
    return file_dataset(root.resolve().name, root, **found._asdict())


def read_zhou(path: Path, images: str = "") -> Found:
    """Read the list at `path`, whose paths are relative to the folder `images`."""
    content = read_json(path)
    names: dict[int, str] = {}
    splits: dict[str, list[Item]] = {"train": [], "test": [], "val": []}
    for split, items in splits.items():
        rows = content.get(split) if isinstance(content, dict) else None
        if rows is None and split == "val":
            continue
        if not isinstance(rows, list):
            raise FedotpError(f"{path} has no list {split!r}: must be {{train, val, test: [...]}}")
        for row in rows:
            match row:
                case [str(image), int(label), str(name)]:
                    learn_name(names, label, name, path)
                    image = relative(image, path)
                    items.append((f"{images}/{image}" if images else image, label, 0))
                case _:
                    raise FedotpError(f"{path}, {split}: {str(row)[:80]} must be [path, label, class name]")
    note = f"{path.name} (CoOp's split, as in the paper)"
    return Found(in_order(names, path), splits["train"], splits["test"], note, splits["val"])


def learn_name(names: dict[int, str], label: int, name: str, path: Path) -> None:
    """Record the name of a label, which must be unique."""
    if names.setdefault(label, name) != name:
        raise FedotpError(f"{path}: label {label} has the names {names[label]!r} and {name!r}")


def in_order(names: dict[int, str], path: Path) -> list[str]:
    """Return the names of labels 0, 1, ..., which must have no gaps."""
    if sorted(names) != list(range(len(names))):
        raise FedotpError(f"{path}: the labels must be 0 to {len(names) - 1} without gaps")
    return [names[k] for k in range(len(names))]


def _image_folder(root: Path, items: Sequence[Item]) -> str:
    """Return the folder that contains the images: "" for `root` itself, or a folder in it with a slash."""
    folders = ["", *(f"{name}/" for name in list_folders(root))]
    return next((folder for item in items[:_TRIED] for folder in folders if (root / folder / item[0]).is_file()), "")
