"""Data sets in tables: CSV files and Hugging Face."""

import csv
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedotp.data._dataset import ONE_DOMAIN, Dataset, Split, group_names
from fedotp.data._image_files import Item, file_dataset, how_to_convert, relative, unread_suffix
from fedotp.data._lists import read_text
from fedotp.data._names import readable, same_name
from fedotp.data._split import TEST, TRAIN, VALIDATION, drawn_split
from fedotp.errors import FedotpError, listed
from fedotp.images import read_image

_COLUMNS = ("path", "label", "split", "site", "group")


@dataclass(frozen=True)
class _Row:
    """A line of the table; missing values are empty."""

    line: int
    path: str
    label: str
    split: str
    site: str
    group: str


def read_csv(table: Path, *, root: Path | None = None, groups: str = "") -> Dataset:
    """Read the images listed in `table`, with paths relative to its own folder or to `root`.

    Sites are domains. A drawn split does not split groups; without a column of groups, `groups` is a regular expression
    on paths.
    """
    rows, notes = _read(table)
    if alike := same_name([row.label for row in rows]):
        one, other = (rows[i] for i in alike)
        raise FedotpError(
            f"{table}, lines {one.line} and {other.line}: the labels {one.label!r} and {other.label!r} have the same "
            f"name {readable(one.label)!r}; use one label, or labels that differ by a word"
        )
    classes = sorted({row.label for row in rows})
    sites = sorted({row.site for row in rows if row.site}) or list(ONE_DOMAIN)
    items: list[Item] = [
        (row.path, classes.index(row.label), sites.index(row.site) if row.site else 0) for row in rows
    ]  # fmt: skip
    named = [row.group for row in rows] if rows[0].group else None
    if named is None and groups:
        named = group_names([row.path for row in rows], groups)
    group_of = None if named is None else {row.path: group for row, group in zip(rows, named, strict=True)}
    if rows[0].split:
        train, test, validation = (
            [item for item, row in zip(items, rows, strict=True) if row.split == split]
            for split in ("train", "test", "val")
        )
        if not test:
            test, validation = validation, []
        trained = {label for _, label, _ in train}
        if (row := next((row for row in rows if classes.index(row.label) not in trained), None)) is not None:
            raise FedotpError(f"{table}, line {row.line}: the label {row.label!r} has no line with split train")
        note = f"column split of {table.name}"
    else:
        validation = []
        train, test, note = drawn_split(items, named)
    return file_dataset(
        table.stem,
        root or table.parent,
        classes=classes,
        domains=sites,
        train=train,
        test=test,
        validation=validation,
        split_note=note,
        notes=notes,
        group_of=group_of,
    )


def _read(table: Path) -> tuple[list[_Row], tuple[str, ...]]:
    """Return the lines and a note on unused columns."""
    text = read_text(table).removeprefix("\ufeff")
    first = text.partition("\n")[0]
    lines = csv.reader(text.splitlines(), delimiter=";" if ";" in first and "," not in first else ",", strict=True)
    header = [name.strip().lower() for name in _next(lines, table) or []]
    for needed in ("path", "label"):
        if needed not in header:
            raise FedotpError(f"{table}, line 1: no column {needed!r} among {listed(header)[:200]}")
    if twice := next((name for name in _COLUMNS if header.count(name) > 1), None):
        raise FedotpError(f"{table}, line 1: two columns {twice!r}")
    rows = []
    while (cells := _next(lines, table)) is not None:
        if any(cell.strip() for cell in cells):
            rows.append(_row(table, lines.line_num, header, cells))
    if not rows:
        raise FedotpError(f"{table}: contains no images, only a header")
    _require_whole(table, rows)
    unused = [name for name in header if name not in _COLUMNS]
    return rows, ((f"unused columns: {listed(unused)}",) if unused else ())


def _next(lines: Iterator[list[str]], table: Path) -> list[str] | None:
    try:
        return next(lines, None)
    except csv.Error as error:
        raise FedotpError(f"{table}, line {getattr(lines, 'line_num', 0)}: not CSV: {error}") from error


def _row(table: Path, line: int, header: list[str], cells: list[str]) -> _Row:
    where = f"{table}, line {line}"
    if len(cells) != len(header):
        raise FedotpError(f"{where}: expected {len(header)} cells as in the header, got {len(cells)}")
    given = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
    for needed in ("path", "label"):
        if not given[needed]:
            raise FedotpError(f"{where}: {needed} is empty")
    if not readable(given["label"]):
        raise FedotpError(f"{where}: the label {given['label']!r} contains no word")
    split = given.get("split", "").lower()
    names = {**dict.fromkeys(TRAIN, "train"), **dict.fromkeys(TEST, "test"), **dict.fromkeys(VALIDATION, "val")}
    if split and split not in names:
        raise FedotpError(f"{where}: split = {given['split'][:40]!r}: must be train, test or val")
    try:
        path = relative(given["path"], table)
    except FedotpError as error:
        raise FedotpError(f"{where}: {error}") from error
    if unread := unread_suffix(path):
        raise FedotpError(f"{where}: unsupported image format {unread}; {how_to_convert([unread])}")
    return _Row(line, path, given["label"], names.get(split, ""), given.get("site", ""), given.get("group", ""))


def _require_whole(table: Path, rows: list[_Row]) -> None:
    """Require that a column has values in all lines or in none, and that no image is listed twice."""
    for column in ("split", "site", "group"):
        filled = [bool(getattr(row, column)) for row in rows]
        if any(filled) and not all(filled):
            line = rows[filled.index(False)].line
            raise FedotpError(f"{table}, line {line}: {column} is empty, but not in other lines")
    first: dict[str, int] = {}
    for row in rows:
        if (line := first.setdefault(row.path, row.line)) != row.line:
            raise FedotpError(f"{table}, lines {line} and {row.line}: {row.path} is listed twice")


@dataclass(frozen=True, eq=False)
class _Table:
    """Rows of a Hugging Face split whose column `column` contains undecoded images."""

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
        raise FedotpError("Hugging Face data sets need the package datasets: pip install 'fedotp[hf]'") from error


def read_hf(path: str) -> Dataset:
    """Load `path` (for example `uoft-cs/cifar10`) with `datasets.load_dataset` and convert it."""
    datasets = _library()
    try:
        tables = datasets.load_dataset(path)
    except Exception as error:  # the library's own errors, those of requests and of the file system
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FedotpError(f"cannot load the Hugging Face data set {path!r}: {first_line}") from error
    return from_hf(tables, name=path)


def from_hf(tables: Any, *, name: str) -> Dataset:
    """Convert a `DatasetDict` with the splits `train` and `test` (or `validation`).

    It uses the first image column and the first class-label column, which also defines the class names.
    """
    datasets = _library()
    test = next((split for split in ("test", "validation", "valid") if split in tables), None)
    if "train" not in tables or test is None:
        raise FedotpError(f"{name} has the splits {', '.join(tables)}: must have train and test")
    features = tables["train"].features
    image = next((c for c, f in features.items() if isinstance(f, datasets.Image)), None)
    label = next((c for c, f in features.items() if isinstance(f, datasets.ClassLabel)), None)
    if image is None or label is None:
        raise FedotpError(f"{name} has the columns {', '.join(features)}: must have an image and a class label")

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
