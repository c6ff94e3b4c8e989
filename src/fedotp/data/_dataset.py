"""Data sets: columns of images, labels and domains, split into train and test."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedotp._files import json_digest
from fedotp._text import counted
from fedotp.data._types import Ints
from fedotp.errors import FedotpError, MissingPackageError, listed
from fedotp.images import decoded, read_image, reason

SplitName = Literal["train", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
DRAWN = "drawn once"  # start of the note on a split that fedotp draws
ONE_DOMAIN = ("all",)  # of data without domains


class ImageSource(Protocol):
    """Source of the images of a split: files, an array, a Hugging Face table."""

    def name(self, row: int) -> str:
        """Identify the image within its data set, the same on every machine."""

    def where(self, row: int) -> str:
        """Return the location of the image for messages."""

    def read(self, row: int) -> bytes:
        """Return the bytes of an image file: equal bytes mean equal images."""


@dataclass(frozen=True)
class ImageFiles:
    """Image files under `root`; `paths` are relative to it, with forward slashes."""

    root: Path
    paths: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<ImageFiles: {len(self.paths):,} in {self.root}>"

    def name(self, row: int) -> str:
        """Return the path below the data set's folder."""
        return self.paths[row]

    def where(self, row: int) -> str:
        """Return the full path."""
        return str(self.root / self.paths[row])

    def read(self, row: int) -> bytes:
        """Return the bytes of the file."""
        return read_image(self.root / self.paths[row])


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Images in memory: `pixels` (n, height, width, 3) uint8, read from the file `path`."""

    path: Path
    pixels: NDArray[np.uint8]

    def __repr__(self) -> str:
        return f"<ImageArray: pixels {self.pixels.shape} of {self.path}>"

    def name(self, row: int) -> str:
        """Return the name, for example `train[17]`."""
        return f"{self.path.name}[{row}]"

    def where(self, row: int) -> str:
        """Return the path of the array's file and the row."""
        return f"{self.path}[{row}]"

    def read(self, row: int) -> bytes:
        """Return the pixels of one image as a PPM file."""
        height, width, _ = self.pixels.shape[1:]
        return b"P6 %d %d 255\n" % (width, height) + self.pixels[row].tobytes()


@dataclass(frozen=True, eq=False)
class Split:
    """n images in a fixed order.

    `rows` (n,) are the positions of the images in `source`, `labels` (n,) class numbers, `domains` (n,) domain numbers
    and `groups` (n,), if any, group numbers in the data set.
    """

    source: ImageSource
    rows: Ints
    labels: Ints
    domains: Ints
    groups: Ints | None = None

    def __repr__(self) -> str:
        return f"<Split: {counted(len(self), 'image')} of {counted(len(np.unique(self.labels)), 'class', 'classes')}>"

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, i: int) -> str:
        """Identify image `i` within the data set, the same on every machine."""
        return self.source.name(int(self.rows[i]))

    def where(self, i: int) -> str:
        """Return the location of image `i` for messages."""
        return self.source.where(int(self.rows[i]))

    def read(self, i: int) -> bytes:
        """Return the bytes of image `i` as a file, which identify its content."""
        return self.source.read(int(self.rows[i]))

    def image(self, i: int) -> Image.Image:
        """Read and decode image `i`, without conversion to RGB."""
        try:
            with decoded(self.read(i)) as image:
                return image
        except MissingPackageError:
            raise
        except (OSError, FedotpError) as error:
            raise FedotpError(
                f"cannot read image {self.where(i)}: {reason(error)}; replace it or skip broken images"
            ) from error

    def select(self, keep: Ints | NDArray[np.bool_]) -> "Split":
        """Return the images at the positions `keep` (indices or mask), in that order."""
        groups = None if self.groups is None else self.groups[keep]
        return Split(self.source, self.rows[keep], self.labels[keep], self.domains[keep], groups)


@dataclass(frozen=True, order=True)
class ImageRef:
    """Image number `index` of the split `split`."""

    split: SplitName
    index: int


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set ready to be partitioned.

    `classes` are the K names for CLIP, in label order; `split_note` describes the source of the train/test split in one
    line. `coarse_of` (K,) maps classes to `coarse_classes`, if any. `skipped` lists the images removed by `without`;
    `notes` list other skipped files of the folder, a line each. `groups` are the names of the patients or parts, if
    known; no group is in both splits. `validation` are images that can replace the test images.
    """

    name: str
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    train: Split
    test: Split
    split_note: str
    coarse_classes: tuple[str, ...] = ()
    coarse_of: tuple[int, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    validation: Split | None = None

    def __post_init__(self) -> None:
        """Check names, labels and groups, and that every class has training images."""
        _check_names(self.name, "classes", self.classes)
        _check_names(self.name, "domains", self.domains)
        for split, labels in (("train", self.train.labels), ("test", self.test.labels)):
            if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes):
                raise FedotpError(f"{self.name}: {split} labels must be from 0 to {len(self.classes) - 1}")
        counts = self.counts("train")
        if not counts.all():
            missing = ", ".join(self.classes[k] for k in np.flatnonzero(counts == 0)[:3])
            raise FedotpError(f"{self.name}: {(counts == 0).sum()} of the classes have no training image: {missing}")
        if not len(self.test):
            raise FedotpError(f"{self.name}: the test split is empty: must contain at least one image")
        train, test = self.train.groups, self.test.groups
        if train is not None and test is not None and len(both := np.intersect1d(train, test)):
            first, second = (int(np.flatnonzero(groups == both[0])[0]) for groups in (train, test))
            raise FedotpError(
                f"{self.name}: {counted(len(both), 'group')} in train and in test, for example "
                f"{self.groups[both[0]]!r} with {self.train.name(first)} and {self.test.name(second)}; "
                "put each group into one split, or remove the split"
            )

    def on_validation(self) -> "Dataset":
        """Return a copy with the validation images as test images, removed from training, to select settings."""
        if self.validation is None:
            raise FedotpError(f"{self.name} has no validation images; remove data.test_split")
        held = {self.validation.name(i) for i in range(len(self.validation))}
        keep = np.array([self.train.name(i) not in held for i in range(len(self.train))], bool)
        note = f"{self.split_note}; tested on its validation images"
        return replace(self, train=self.train.select(keep), test=self.validation, validation=None, split_note=note)

    def grouped(self, pattern: str) -> "Dataset":
        """Return a copy with groups from a regular expression on image names: its first group, or the whole match."""
        splits = [self.train, self.test, *([self.validation] if self.validation else [])]
        names = [group_names([split.name(i) for i in range(len(split))], pattern) for split in splits]
        groups = sorted({group for column in names for group in column})
        number = {group: i for i, group in enumerate(groups)}
        train, test, *validation = (
            replace(split, groups=np.array([number[group] for group in column], np.int64))
            for split, column in zip(splits, names, strict=True)
        )
        held = validation[0] if validation else None
        return replace(self, train=train, test=test, validation=held, groups=tuple(groups))

    def __repr__(self) -> str:
        domains = f", {len(self.domains)} domains" if len(self.domains) > 1 else ""
        sizes = f"{len(self.train):,} train and {len(self.test):,} test images"
        return f"<Dataset {self.name}: {len(self.classes):,} classes{domains}, {sizes}>"

    def split(self, name: SplitName) -> Split:
        """Return the split called `name`."""
        return self.train if name == "train" else self.test

    def counts(self, name: SplitName) -> Ints:
        """Count the images of each class: (K,)."""
        return np.bincount(self.split(name).labels, minlength=len(self.classes)).astype(np.int64)

    def where(self, ref: ImageRef) -> str:
        """Return the location of the image `ref` for messages."""
        return self.split(ref.split).where(ref.index)

    def without(self, refs: Iterable[ImageRef]) -> "Dataset":
        """Return a copy without the images `refs`, which are added to `skipped`."""
        removed = sorted(refs)
        keep = {name: np.ones(len(self.split(name)), bool) for name in SPLITS}
        for ref in removed:
            keep[ref.split][ref.index] = False
        return replace(
            self,
            train=self.train.select(keep["train"]),
            test=self.test.select(keep["test"]),
            skipped=(*self.skipped, *(self.split(ref.split).name(ref.index) for ref in removed)),
        )

    def base_and_novel(self) -> tuple["Dataset", "Dataset"]:
        """Split into data sets of the first ceil(K / 2) classes, in label order, and of the others, from 0 again."""
        n_classes, both = len(self.classes), (self.train, self.test)
        if n_classes < 4:
            raise FedotpError(f"{self.name}: base and novel classes need at least 4 classes, got {n_classes}")
        middle = -(-n_classes // 2)
        return self._only(np.arange(middle), both), self._only(np.arange(middle, n_classes), both)

    def site_number(self, site: str) -> int:
        """Return the number of the domain `site`."""
        if site not in self.domains:
            raise FedotpError(f"{self.name} has no site {site!r}; its sites are {listed(self.domains)}")
        return self.domains.index(site)

    def of_site(self, site: str) -> "Dataset":
        """Return the data set of one site (or domain) with its training classes; other test images are removed."""
        here = self.site_number(site)
        train, test = (split.select(split.domains == here) for split in (self.train, self.test))
        return self._only(np.unique(train.labels), (train, test))

    def _only(self, labels: Ints, splits: tuple[Split, Split]) -> "Dataset":
        """Select the images of the splits whose labels are in `labels` (k,), ascending."""
        kept = [split.select(np.isin(split.labels, labels)) for split in splits]
        train, test = (replace(split, labels=np.searchsorted(labels, split.labels)) for split in kept)
        of = [self.coarse_of[label] for label in labels] if self.coarse_of else []
        coarse, coarse_of = np.unique(np.array(of, np.int64), return_inverse=True)
        return replace(
            self,
            classes=tuple(self.classes[label] for label in labels),
            train=train,
            test=test,
            coarse_classes=tuple(self.coarse_classes[number] for number in coarse),
            coarse_of=tuple(coarse_of.tolist()),
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of names, classes, labels and domains; the same on every machine."""
        columns = [
            [[split.name(i) for i in range(len(split))], split.labels.tolist(), split.domains.tolist()]
            for split in (self.train, self.test)
        ]
        facts = [self.name, self.classes, self.domains, self.coarse_of, columns]
        return json_digest(facts)


def group_names(names: Sequence[str], pattern: str) -> list[str]:
    """Return the match of the regular expression `pattern` in each name."""
    compiled = re.compile(pattern)
    found = []
    for name in names:
        if (match := compiled.search(name)) is None or not (group := match[1] if compiled.groups else match[0]):
            raise FedotpError(f"data.groups = {pattern!r} does not match {name}")
        found.append(group)
    return found


def _check_names(dataset: str, what: str, names: Sequence[str]) -> None:
    if not names:
        raise FedotpError(f"{dataset}: no {what} found")
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if not name:
            raise FedotpError(f"{dataset}: {what}[{i}] has an empty name")
        if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name):  # surrogates of invalid bytes
            raise FedotpError(f"{dataset}: the name {name!r} of {what}[{i}] is not UTF-8; rename it")
        if name in seen:
            raise FedotpError(
                f"{dataset}: {what}[{seen[name]}] and {what}[{i}] have the same name {name!r}; rename one"
            )
        seen[name] = i
