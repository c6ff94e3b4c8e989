"""Caltech101, Flowers102, OxfordPets, Food101 and DTD: the official layouts, or CoOp's `split_zhou_*.json`.

CoOp's file wins where it is there: it is the split the paper uses. Its validation images are left out, as in
the paper. Official splits train on train + validation. Who asks for the validation images in place of the test images
trains without them. Oxford's flower labels are numeric matrices in MATLAB's level 5 file format, of which no more is
read here.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fedotp._files import read_regular
from fedotp.data import _names
from fedotp.data._image_files import Item, in_folders, list_folders, relative
from fedotp.data._lists import read_json, read_lines
from fedotp.data._split import BY_CLASS, split_by_class
from fedotp.data._types import Ints
from fedotp.data._zhou import Found, in_order, learn_name, read_coop
from fedotp.errors import FedotpError

_CALTECH_IGNORED = ("BACKGROUND_Google", "Faces_easy")

# https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf, tables 1-1 and 1-3
_NUMERIC = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_HEADER_BYTES = 128
_MOST_BYTES = 16 << 20  # of the file, and of each variable unpacked: the flowers' labels have 15 kB


def _caltech101(root: Path) -> Found:
    images = "101_ObjectCategories"
    folders = [f for f in list_folders(root / images) if f not in _CALTECH_IGNORED]
    classes = [_names.CALTECH101.get(f, f) for f in folders]
    return Found(classes, *split_by_class(in_folders(root, images, folders)), BY_CLASS)


def _flowers102(root: Path) -> Found:
    classes = _flower_names(root / "cat_to_name.json")
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
                    learn_name(names, int(number) - 1, image.rsplit("_", 1)[0], path)
                    items.append((f"images/{relative(image, path)}.jpg", int(number) - 1, 0))
                case [first, *_] if not first.startswith("#"):
                    raise FedotpError(f"{path}: {line[:80]!r} should be 'Breed_12 1 1 1'")
    classes = in_order(names, root / "annotations")
    return Found(classes, splits["trainval"], splits["test"], "official annotations: trainval / test")


def _food101(root: Path) -> Found:
    classes = read_lines(root / "meta" / "classes.txt")
    train, test = (_by_folder(root / "meta" / f"{s}.txt", classes, ".jpg") for s in ("train", "test"))
    return Found(classes, train, test, "official meta/train.txt / meta/test.txt")


def _dtd(root: Path) -> Found:
    classes = list_folders(root / "images")
    train1, val1, test1 = (_by_folder(root / "labels" / f"{s}.txt", classes) for s in ("train1", "val1", "test1"))
    return Found(classes, train1 + val1, test1, "official labels, split 1: train1 + val1 / test1", val1)


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


read_caltech101 = partial(read_coop, "caltech101", "Caltech101", "101_ObjectCategories", _caltech101)
read_flowers102 = partial(read_coop, "flowers102", "OxfordFlowers", "jpg", _flowers102)
read_oxford_pets = partial(read_coop, "oxford_pets", "OxfordPets", "images", _oxford_pets)
read_food101 = partial(read_coop, "food101", "Food101", "images", _food101)
read_dtd = partial(read_coop, "dtd", "DescribableTextures", "images", _dtd)


def read_mat(path: Path) -> dict[str, Ints]:
    """Read the numeric variables of a MAT file, flattened to whole numbers: name -> (n,)."""
    try:
        content = read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror}") from error
    try:
        if content[126:128] != b"IM":
            raise ValueError("no little-endian MAT 5 header")
        return dict(_variable(body) for kind, body in _unpacked(content[_HEADER_BYTES:]) if kind == _MATRIX)
    except (ValueError, KeyError, IndexError, struct.error, zlib.error, UnicodeDecodeError) as error:
        raise FedotpError(f"{path} is not a MAT 5 file of numbers: {error}") from error


def _unpacked(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The (type, body) elements of a file; compressed ones are opened."""
    for kind, body in _elements(data):
        if kind != _COMPRESSED:
            yield kind, body
            continue
        unpacking = zlib.decompressobj()
        unpacked = unpacking.decompress(body, _MOST_BYTES)
        if not unpacking.eof:
            raise ValueError("a variable is cut short or far too large")
        yield from _elements(unpacked)


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Split into (type, body) elements."""
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
            raise ValueError("it is cut short")
        found.append((kind, body))
        at += 8 + (size if kind == _COMPRESSED else (size + 7) // 8 * 8)
    return found


def _variable(body: bytes) -> tuple[str, Ints]:
    """Read one matrix: array flags, dimensions, name, real part."""
    _, _, (_, name), (kind, values) = _elements(body)[:4]
    return name.decode("ascii"), np.frombuffer(values, "<" + _NUMERIC[kind]).astype(np.int64)
