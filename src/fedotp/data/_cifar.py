"""CIFAR-10 and CIFAR-100 from the official archives of Python pickles."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedotp.data._dataset import ONE_DOMAIN, Dataset, ImageArray, Split
from fedotp.data._names import readable
from fedotp.data._unpickle import read_pickle
from fedotp.errors import FedotpError

_SIDE = 32
_MOST_CLASSES = 1 << 20
_NOTE = "official train and test batches"


def read_cifar10(root: Path) -> Dataset:
    """Read the folder `cifar-10-batches-py`."""
    (names,) = _read_names(root / "batches.meta", "label_names")
    batches = [_read_images(root / f"data_batch_{i}", "labels") for i in range(1, 6)]
    return Dataset(
        name="cifar10",
        classes=names,
        domains=ONE_DOMAIN,
        train=_split(root / "data_batch", *batches),
        test=_split(root / "test_batch", _read_images(root / "test_batch", "labels")),
        split_note=_NOTE,
    )


def read_cifar100(root: Path) -> Dataset:
    """Read the folder `cifar-100-python`, with the 20 coarse labels."""
    names, coarse_names = _read_names(root / "meta", "fine_label_names", "coarse_label_names")
    pixels, fine, coarse = _read_images(root / "train", "fine_labels", "coarse_labels")
    pairs = sorted(set(zip(fine.tolist(), coarse.tolist(), strict=True)))
    if [k for k, _ in pairs] != list(range(len(names))) or not all(c < len(coarse_names) for _, c in pairs):
        raise FedotpError(f"{root / 'train'}: every class must have one coarse label below {len(coarse_names)}")
    return Dataset(
        name="cifar100",
        classes=names,
        domains=ONE_DOMAIN,
        train=_split(root / "train", [pixels, fine]),
        test=_split(root / "test", _read_images(root / "test", "fine_labels")),
        split_note=_NOTE,
        coarse_classes=coarse_names,
        coarse_of=tuple(c for _, c in pairs),
    )


def _read(path: Path, *keys: str) -> list[Any]:
    """Read the entries `keys` of one pickled dictionary."""
    content = read_pickle(path)
    if not isinstance(content, dict) or any(key not in content for key in keys):
        raise FedotpError(f"{path} is not a CIFAR file: must contain {' and '.join(keys)}")
    return [content[key] for key in keys]


def _read_names(path: Path, *keys: str) -> list[tuple[str, ...]]:
    """Read the entries `keys`, each a list of names."""
    columns = _read(path, *keys)
    for key, names in zip(keys, columns, strict=True):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise FedotpError(f"{path}: {key} must be a list of names")
    return [tuple(map(readable, names)) for names in columns]


def _read_images(path: Path, *keys: str) -> list[Any]:
    """Read the pixels (n, 3072), channel by channel, and the labels `keys`, each (n,)."""
    pixels, *columns = _read(path, "data", *keys)
    for key, labels in zip(keys, columns, strict=True):
        if not isinstance(labels, list) or not all(
            type(label) is int and 0 <= label < _MOST_CLASSES for label in labels
        ):
            raise FedotpError(f"{path}: {key} must be a list of non-negative integers")
        if getattr(pixels, "dtype", None) != np.uint8 or pixels.shape != (len(labels), 3 * _SIDE * _SIDE):
            raise FedotpError(f"{path}: data must be uint8 of shape ({len(labels)}, {3 * _SIDE * _SIDE})")
    return [pixels, *(np.array(labels, np.int64) for labels in columns)]


def _split(path: Path, *batches: Sequence[Any]) -> Split:
    """Join batches of (pixels, labels)."""
    stored = np.concatenate([pixels for pixels, _ in batches])
    images = np.ascontiguousarray(stored.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1))  # (n, h, w, 3)
    labels = np.concatenate([labels for _, labels in batches])
    return Split(ImageArray(path, images), np.arange(len(labels)), labels, np.zeros_like(labels))
