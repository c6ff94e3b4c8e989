"""Data sets of the Hugging Face hub, through the optional `datasets` package."""

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedotp.data._dataset import ONE_DOMAIN, Dataset, FileContents, Split
from fedotp.data._names import readable
from fedotp.errors import FedotpError
from fedotp.images import read_image


@dataclass(frozen=True, eq=False)
class _Table(FileContents):
    """Rows of a Hugging Face split whose column `column` holds undecoded images."""

    rows: Any
    column: str
    label: str

    def name(self, row: int) -> str:
        return f"{self.label}[{row}]"

    where = name

    def read(self, row: int) -> bytes:
        cell = self.rows[row][self.column]
        if cell["bytes"] is not None:
            return bytes(cell["bytes"])
        return read_image(cell["path"])


def _library() -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise FedotpError("reading from Hugging Face needs its library: pip install 'fedotp[hf]'") from error


def read_hf(path: str, *, config: str | None = None) -> Dataset:
    """Load `path` (for example `uoft-cs/cifar10`) with `datasets.load_dataset` and read it."""
    datasets = _library()
    try:
        tables = datasets.load_dataset(path, config)
    except Exception as error:  # the library raises its own, requests' and the file system's errors
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FedotpError(f"Hugging Face data set {path!r} cannot be loaded: {first_line}") from error
    return from_hf(tables, name=path)


def from_hf(tables: Any, *, name: str) -> Dataset:
    """Read a `DatasetDict` with the splits `train` and `test` (or `validation`).

    The first image column and the first class-label column are used; class names come from the label column.
    """
    datasets = _library()
    test = next((split for split in ("test", "validation", "valid") if split in tables), None)
    if "train" not in tables or test is None:
        raise FedotpError(f"{name} has the splits {', '.join(tables)}; it needs train and test")
    features = tables["train"].features
    image = next((c for c, f in features.items() if isinstance(f, datasets.Image)), None)
    label = next((c for c, f in features.items() if isinstance(f, datasets.ClassLabel)), None)
    if image is None or label is None:
        raise FedotpError(f"{name} has the columns {', '.join(features)}; it needs an image and a class label")

    def split(key: str) -> Split:
        rows = tables[key].cast_column(image, datasets.Image(decode=False))
        labels = np.asarray(tables[key][label], np.int64)
        n = len(labels)
        return Split(_Table(rows, image, f"{name}/{key}"), np.arange(n), labels, np.zeros(n, np.int64))

    return Dataset(
        name=name,
        classes=tuple(readable(c) for c in features[label].names),
        domains=ONE_DOMAIN,
        train=split("train"),
        test=split(test),
        validation=next((split(key) for key in ("validation", "valid") if key in tables and key != test), None),
        split_note=f"Hugging Face splits train and {test}",
    )
