"""CoOp's data sets: by its lists `split_zhou_<name>.json`, or in their official layouts.

A list, `{train|val|test: [[path, label, class name], ...]}`, is the paper's split and has priority. Its validation
images are skipped, as in the paper, unless they replace the test images; official splits train on train + validation.
Validation images that replace the test images are excluded from training. Oxford's flower labels are numeric matrices
in MATLAB's level 5 file format; nothing else of the format is supported.

StanfordCars, SUN397 and UCF101 have only CoOp's list. FGVC-Aircraft has the official lists of variants, of which CoOp
trains on `train` alone, and ImageNet the official folders, of which CoOp tests on `val`.
"""

import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedotp._files import read_file, read_json
from fedotp.data._dataset import Dataset
from fedotp.data._image_files import Item, file_dataset, in_folders, list_folders, relative
from fedotp.data._lists import MOST_BYTES, read_lines
from fedotp.data._names import FACTS, names_of
from fedotp.data._split import BY_CLASS, split_by_class
from fedotp.data._types import Ints
from fedotp.errors import FedotpError, listed

_TRIED = 100  # images searched for in every folder
_CALTECH_IGNORED = ("BACKGROUND_Google", "Faces_easy")

# https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf, tables 1-1 and 1-3
_NUMERIC = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_HEADER_BYTES = 128
_MOST_BYTES = 16 << 20  # of the file, and of each decompressed variable: the flowers' labels have 15 kB


class Found(NamedTuple):
    """Contents of a list: class names, images, note on the split; `validation` may be a part of `train`."""

    classes: Sequence[str]
    train: Sequence[Item]
    test: Sequence[Item]
    split_note: str
    validation: Sequence[Item] = ()


def _class_folders(images: str, root: Path) -> Found:
    """Read the class folders in `images`, which have no published split."""
    folders = [f for f in list_folders(root / images) if f not in _CALTECH_IGNORED]
    return Found(folders, *split_by_class(in_folders(root, images, folders)), BY_CLASS)


def _flowers102(root: Path) -> Found:
    classes = names_of("flowers102")
    labels = _numbers(root / "imagelabels.mat", "labels", len(classes)) - 1
    items = [(f"jpg/image_{i:05d}.jpg", int(label), 0) for i, label in enumerate(labels, start=1)]
    sets = root / "setid.mat"
    if not sets.is_file():
        return Found(classes, *split_by_class(items), BY_CLASS)
    train, validation, test = (
        [items[i - 1] for i in _numbers(sets, key, len(items))] for key in ("trnid", "valid", "tstid")
    )
    return Found(classes, train + validation, test, "official setid.mat: trnid + valid / tstid", validation)


def _numbers(path: Path, key: str, largest: int) -> Ints:
    """Read the variable `key` of a MAT file: whole numbers from 1 to `largest`."""
    values = read_mat(path).get(key)
    if values is None or not len(values) or values.min() < 1 or values.max() > largest:
        raise FedotpError(f"{path}: the variable {key!r} must contain numbers from 1 to {largest}")
    return values


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
                    raise FedotpError(f"{path}: {line[:80]!r} must be like 'Breed_12 1 1 1'")
    classes = _in_order(names, root / "annotations")
    return Found(classes, splits["trainval"], splits["test"], "official annotations: trainval / test")


def _food101(root: Path) -> Found:
    classes = read_lines(root / "meta" / "classes.txt")
    train, test = (_listed(root / "meta" / f"{s}.txt", classes, ".jpg") for s in ("train", "test"))
    return Found(classes, train, test, "official meta/train.txt / meta/test.txt")


def _dtd(root: Path) -> Found:
    classes = list_folders(root / "images")
    train1, val1, test1 = (_listed(root / "labels" / f"{s}.txt", classes) for s in ("train1", "val1", "test1"))
    return Found(classes, train1 + val1, test1, "official labels, split 1: train1 + val1 / test1", val1)


def _listed(path: Path, classes: Sequence[str], suffix: str = "", form: str = "class/image") -> list[Item]:
    """Read a list of lines of this form, "class/image" or "image class"."""
    label = {name: k for k, name in enumerate(classes)}
    items = []
    for line in read_lines(path):
        image, name = (line, line.partition("/")[0]) if form == "class/image" else line.partition(" ")[::2]
        if name not in label or image == name:
            raise FedotpError(f"{path}: {line[:80]!r} must be {form} with one of {len(classes)} classes")
        items.append((f"images/{relative(image, path)}{suffix}", label[name], 0))
    return items


def read_mat(path: Path) -> dict[str, Ints]:
    """Read the numeric variables of a MAT file, flattened to whole numbers: name -> (n,)."""
    content = read_file(path, _MOST_BYTES)
    try:
        if content[126:128] != b"IM":
            raise ValueError("missing little-endian MAT 5 header")
        return dict(_variable(body) for kind, body in _unpacked(content[_HEADER_BYTES:]) if kind == _MATRIX)
    except (ValueError, KeyError, IndexError, struct.error, zlib.error, UnicodeDecodeError) as error:
        raise FedotpError(f"{path} is not a MAT 5 file of numbers: {error}") from error


def _unpacked(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the (type, body) elements of a file, decompressed."""
    for kind, body in _elements(data):
        if kind != _COMPRESSED:
            yield kind, body
            continue
        unpacking = zlib.decompressobj()
        unpacked = unpacking.decompress(body, _MOST_BYTES)
        if not unpacking.eof:
            raise ValueError("a variable is truncated or too large")
        yield from _elements(unpacked)


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:  # small element: size and type share one word, the body is the next
            size, kind = kind >> 16, kind & 0xFFFF
            found.append((kind, data[at + 4 : at + 4 + size]))
            at += 8
            continue
        body = data[at + 8 : at + 8 + size]
        if len(body) < size:
            raise ValueError("the file is truncated")
        found.append((kind, body))
        at += 8 + (size if kind == _COMPRESSED else (size + 7) // 8 * 8)
    return found


def _variable(body: bytes) -> tuple[str, Ints]:
    """Read one matrix: array flags, dimensions, name, real part."""
    _, _, (_, name), (kind, values) = _elements(body)[:4]
    return name.decode("ascii"), np.frombuffer(values, "<" + _NUMERIC[kind]).astype(np.int64)


def _fgvc_aircraft(root: Path) -> Found:
    """Read `images/<number>.jpg` by `variants.txt` and `images_variant_{train,test}.txt`."""
    classes = read_lines(root / "variants.txt")
    train, test = (_listed(root / f"images_variant_{s}.txt", classes, ".jpg", "image class") for s in ("train", "test"))
    note = "official images_variant_train.txt / images_variant_test.txt (CoOp's split)"
    return Found(classes, train, test, note)


def _imagenet(root: Path) -> Found:
    """Read `images/{train,val}/<WordNet number>/*.JPEG`; `classnames.txt` has a line `n01440764 tench` for each."""
    names: dict[str, str] = {}
    path = root / "classnames.txt"
    for line in read_lines(path):
        folder, _, name = line.partition(" ")
        if not name:
            raise FedotpError(f"{path}: {line[:80]!r} must be like 'n01440764 tench'")
        names[folder] = name.strip()
    times = Counter(names.values())
    names |= {folder: name for folder, name in FACTS["imagenet"]["renamed"].items() if times[names.get(folder, "")] > 1}
    folders = list_folders(root / "images" / "train")
    unnamed = [folder for folder in folders if folder not in names]
    if unnamed:
        raise FedotpError(f"{path} has no line for {unnamed[0]}, a folder in {root / 'images' / 'train'}")
    train, test = (in_folders(root, f"images/{split}", folders) for split in ("train", "val"))
    classes = [names[folder] for folder in folders]
    return Found(classes, train, test, "official folders images/train/ and images/val/")


_LAYOUTS: dict[str, Callable[[Path], Found]] = {
    "caltech101": partial(_class_folders, "101_ObjectCategories"),
    "flowers102": _flowers102,
    "oxford_pets": _oxford_pets,
    "food101": _food101,
    "dtd": _dtd,
    "eurosat": partial(_class_folders, "2750"),
    "fgvc_aircraft": _fgvc_aircraft,
    "imagenet": _imagenet,
}


def read_official(name: str, root: Path) -> Dataset:
    """Read the data set `name` from its folder `root`: by CoOp's list, if it exists, else by the official layout."""
    facts = FACTS[name]
    list_name, images = facts.get("list", ("", ""))
    path = root / f"split_zhou_{list_name}.json"
    if list_name and path.is_file():
        found = _read_zhou(path, images)
    elif name in _LAYOUTS:
        found = _LAYOUTS[name](root)
    else:
        raise FedotpError(f"{root} has no {path.name}, the list of its images")
    renamed = facts.get("renamed", {})
    found = found._replace(classes=[renamed.get(each, each) for each in found.classes])
    return file_dataset(name, root, **found._asdict())


# CoOp's lists ----------------------------------------------------------------------------------------------


def zhou_lists(root: Path) -> list[Path]:
    """Return the lists in the folder `root`."""
    return sorted(root.glob("split_zhou_*.json"))


def read_listed(root: Path) -> Dataset:
    """Read any data set with one of CoOp's lists in its folder; images are there or in one of its folders."""
    path, *more = zhou_lists(root)
    if more:
        raise FedotpError(f"{root} has several lists, {listed([p.name for p in (path, *more)])}; keep only one")
    found = _read_zhou(path)
    folders = ["", *(f"{name}/" for name in list_folders(root))]
    places = ((folder, item[0]) for item in found.train[:_TRIED] for folder in folders)
    images = next((folder for folder, path in places if (root / folder / path).is_file()), "")
    train, test, validation = (
        [(f"{images}{path}", label, domain) for path, label, domain in items]
        for items in (found.train, found.test, found.validation)
    )
    found = found._replace(train=train, test=test, validation=validation)
    return file_dataset(root.resolve().name, root, **found._asdict())


def _read_zhou(path: Path, images: str = "") -> Found:
    """Read the list at `path`, whose paths are relative to the folder `images`."""
    content = read_json(path, MOST_BYTES)
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
                    _learn_name(names, label, name, path)
                    image = relative(image, path)
                    items.append((f"{images}/{image}" if images else image, label, 0))
                case _:
                    raise FedotpError(f"{path}, {split}: {str(row)[:80]} must be [path, label, class name]")
    note = f"{path.name} (CoOp's split, as in the paper)"
    return Found(_in_order(names, path), splits["train"], splits["test"], note, splits["val"])


def _learn_name(names: dict[int, str], label: int, name: str, path: Path) -> None:
    """Record the name of a label, which must be unique."""
    if names.setdefault(label, name) != name:
        raise FedotpError(f"{path}: label {label} has the names {names[label]!r} and {name!r}")


def _in_order(names: dict[int, str], path: Path) -> list[str]:
    """Return the names of labels 0, 1, ..., which must have no gaps."""
    if sorted(names) != list(range(len(names))):
        raise FedotpError(f"{path}: the labels must be 0 to {len(names) - 1} without gaps")
    return [names[k] for k in range(len(names))]
