"""Caltech101, Flowers102, OxfordPets, Food101 and DTD: the official layouts, or CoOp's `split_zhou_*.json`.

CoOp's file wins where it is there: it is the split the paper uses. Its validation images are left out, as in
the paper. Official splits train on train + validation.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fedotp.data._files import read_json, read_lines
from fedotp.data._types import Ints
from fedotp.data.sets import _names
from fedotp.data.sets._dataset import Dataset
from fedotp.data.sets._image_files import Item, file_dataset, list_folders, list_images, relative
from fedotp.data.sets._mat import read_mat
from fedotp.data.sets._split import split_by_class
from fedotp.errors import FedotpError

Found = tuple[Sequence[str], list[Item], list[Item], str]  # class names, train, test, where the split is from

_CALTECH_IGNORED = ("BACKGROUND_Google", "Faces_easy")
_DRAWN = "drawn once, 50 % train and 30 % test of every class (CoOp's sizes, not its members)"


def _read(name: str, json_name: str, images: str, official: Callable[[Path], Found], root: Path) -> Dataset:
    """Read the data set `name` from its folder `root`, whose images are under `images`."""
    split_file = root / f"split_zhou_{json_name}.json"
    found = _zhou(split_file, images) if split_file.is_file() else official(root)
    classes, train, test, note = found
    return file_dataset(name, root, classes=classes, train=train, test=test, split_note=note)


def _zhou(path: Path, images: str) -> Found:
    """Read `{train|val|test: [[path, label, class name], ...]}`."""
    content = read_json(path)
    names: dict[int, str] = {}
    splits: dict[str, list[Item]] = {"train": [], "test": []}
    for split, items in splits.items():
        rows = content.get(split) if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise FedotpError(f"{path} has no list {split!r}; it should be {{train, val, test: [...]}}")
        for row in rows:
            match row:
                case [str(image), int(label), str(name)]:
                    _learn_name(names, label, name, path)
                    items.append((f"{images}/{relative(image, path)}", label, 0))
                case _:
                    raise FedotpError(f"{path}, {split}: {str(row)[:80]} should be [path, label, class name]")
    note = f"{path.name} (CoOp's split, as in the paper)"
    return _in_order(names, path), splits["train"], splits["test"], note


def _learn_name(names: dict[int, str], label: int, name: str, path: Path) -> None:
    if names.setdefault(label, name) != name:
        raise FedotpError(f"{path}: label {label} is called {names[label]!r} and {name!r}")


def _in_order(names: dict[int, str], path: Path) -> list[str]:
    if sorted(names) != list(range(len(names))):
        raise FedotpError(f"{path}: the labels of {len(names)} classes should have no gaps")
    return [names[k] for k in range(len(names))]


def _caltech101(root: Path) -> Found:
    images = "101_ObjectCategories"
    folders = [f for f in list_folders(root / images) if f not in _CALTECH_IGNORED]
    items = [
        (f"{images}/{folder}/{name}", label, 0)
        for label, folder in enumerate(folders)
        for name in list_images(root / images / folder)
    ]
    return [_names.CALTECH101.get(f, f) for f in folders], *split_by_class(items), _DRAWN


def _flowers102(root: Path) -> Found:
    classes = _flower_names(root / "cat_to_name.json")
    labels = _numbers(root / "imagelabels.mat", "labels", len(classes)) - 1
    items = [(f"jpg/image_{i:05d}.jpg", int(label), 0) for i, label in enumerate(labels, start=1)]
    sets = root / "setid.mat"
    if not sets.is_file():
        return classes, *split_by_class(items), _DRAWN
    train, validation, test = (
        [items[i - 1] for i in _numbers(sets, key, len(items))] for key in ("trnid", "valid", "tstid")
    )
    return classes, train + validation, test, "official setid.mat: trnid + valid / tstid"


def _numbers(path: Path, key: str, largest: int) -> Ints:
    """Read the variable `key` of a MAT file: whole numbers from 1 to `largest`."""
    values = read_mat(path).get(key)
    if values is None or not len(values) or values.min() < 1 or values.max() > largest:
        raise FedotpError(f"{path}: the variable {key!r} should hold numbers from 1 to {largest}")
    return values


def _flower_names(path: Path) -> Sequence[str]:
    """Return CoOp's names where its file is there, the official ones otherwise."""
    if not path.is_file():
        return _names.FLOWERS102
    names = read_json(path)
    if not isinstance(names, dict) or any(not str(key).isdecimal() for key in names):
        raise FedotpError(f'{path} should be {{"1": name, ...}}')
    by_label = {int(key): str(name) for key, name in names.items()}
    return [by_label[k] for k in sorted(by_label)]


def _oxford_pets(root: Path) -> Found:
    names: dict[int, str] = {}
    splits: dict[str, list[Item]] = {"trainval": [], "test": []}
    for split, items in splits.items():
        path = root / "annotations" / f"{split}.txt"
        for line in read_lines(path):
            match line.split():
                case [image, number, _, _] if number.isdecimal() and "_" in image:
                    _learn_name(names, int(number) - 1, image.rsplit("_", 1)[0], path)
                    items.append((f"images/{relative(image, path)}.jpg", int(number) - 1, 0))
                case [first, *_] if not first.startswith("#"):
                    raise FedotpError(f"{path}: {line[:80]!r} should be 'Breed_12 1 1 1'")
    classes = _in_order(names, root / "annotations")
    return classes, splits["trainval"], splits["test"], "official annotations: trainval / test"


def _food101(root: Path) -> Found:
    classes = read_lines(root / "meta" / "classes.txt")
    train, test = (_by_folder(root / "meta" / f"{s}.txt", classes, ".jpg") for s in ("train", "test"))
    return classes, train, test, "official meta/train.txt / meta/test.txt"


def _dtd(root: Path) -> Found:
    classes = list_folders(root / "images")
    train1, val1, test1 = (_by_folder(root / "labels" / f"{s}.txt", classes) for s in ("train1", "val1", "test1"))
    return classes, train1 + val1, test1, "official labels, split 1: train1 + val1 / test1"


def _by_folder(path: Path, classes: Sequence[str], suffix: str = "") -> list[Item]:
    """Read a list of `class/image` lines."""
    label = {name: k for k, name in enumerate(classes)}
    items = []
    for line in read_lines(path):
        folder, _, image = line.partition("/")
        if folder not in label or not image:
            raise FedotpError(f"{path}: {line[:80]!r} is not class/image with one of {len(classes)} classes")
        items.append((f"images/{relative(line, path)}{suffix}", label[folder], 0))
    return items


read_caltech101 = partial(_read, "caltech101", "Caltech101", "101_ObjectCategories", _caltech101)
read_flowers102 = partial(_read, "flowers102", "OxfordFlowers", "jpg", _flowers102)
read_oxford_pets = partial(_read, "oxford_pets", "OxfordPets", "images", _oxford_pets)
read_food101 = partial(_read, "food101", "Food101", "images", _food101)
read_dtd = partial(_read, "dtd", "DescribableTextures", "images", _dtd)
