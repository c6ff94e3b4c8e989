"""What a data set is: columns of images, labels and domains, split into train and test."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedotp._text import counted
from fedotp.data._types import Ints
from fedotp.errors import FedotpError, MissingPackageError, listed
from fedotp.images import decoded, read_image, reason

SplitName = Literal["train", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
DRAWN = "drawn once"  # how the note on a split begins that came without one
ONE_DOMAIN = ("all",)  # of data that have none


class ImageSource(Protocol):
    """Where the images of a split come from: files, an array, a Hugging Face table."""

    def name(self, row: int) -> str:
        """Identify the image within its data set, the same on every machine."""

    def where(self, row: int) -> str:
        """Say where a person finds the image."""

    def read(self, row: int) -> bytes:
        """Return the stored bytes: equal bytes mean equal images."""

    def decoded(self, content: bytes) -> AbstractContextManager[Image.Image]:
        """Turn what `read` returned into an image; the block is where it takes memory."""


class FileContents:
    """Of a source that holds image files, wherever they lie: any process can decode their bytes."""

    def decoded(self, content: bytes) -> AbstractContextManager[Image.Image]:
        """Decode with Pillow; the image keeps its mode and its EXIF orientation tag."""
        return decoded(content)


@dataclass(frozen=True)
class ImageFiles(FileContents):
    """Image files under `root`; `paths` are relative to it, with forward slashes."""

    root: Path
    paths: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<ImageFiles: {len(self.paths):,} in {self.root}>"

    def name(self, row: int) -> str:
        """Return the path below the data set's folder."""
        return self.paths[row]

    def where(self, row: int) -> str:
        """Return the whole path."""
        return str(self.root / self.paths[row])

    def read(self, row: int) -> bytes:
        """Return the bytes of the file."""
        return read_image(self.root / self.paths[row])


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Images held in memory: `pixels` (n, height, width, 3) uint8, read from the file `path`."""

    path: Path
    pixels: NDArray[np.uint8]

    def __repr__(self) -> str:
        return f"<ImageArray: pixels {self.pixels.shape} of {self.path}>"

    def name(self, row: int) -> str:
        """Return for example `train[17]`."""
        return f"{self.path.name}[{row}]"

    def where(self, row: int) -> str:
        """Return the path of the array's file and the row in it."""
        return f"{self.path}[{row}]"

    def read(self, row: int) -> bytes:
        """Return the pixels of one image."""
        return bytes(self.pixels[row].tobytes())

    def decoded(self, content: bytes) -> AbstractContextManager[Image.Image]:
        """Make an RGB image of the pixels."""
        return nullcontext(Image.fromarray(np.frombuffer(content, np.uint8).reshape(self.pixels.shape[1:])))


@dataclass(frozen=True, eq=False)
class Split:
    """n images in a fixed order.

    `rows` (n,) says where in `source` each image is, `labels` (n,) are class numbers, `domains` (n,) domain numbers and
    `groups` (n,), where there are any, group numbers of the data set the split belongs to.
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
        """Say where a person finds image `i`."""
        return self.source.where(int(self.rows[i]))

    def read(self, i: int) -> bytes:
        """Return the stored bytes of image `i`: the key to look its content up by."""
        return self.source.read(int(self.rows[i]))

    def decoded(self, content: bytes) -> AbstractContextManager[Image.Image]:
        """Decode what `read` returned, completely, in the image's own mode; a broken one is a `FedotpError`.

        The block ends when the image is no longer needed: it bounds what all threads together decode at a time.
        """
        return self.source.decoded(content)

    def image(self, i: int) -> Image.Image:
        """Read and decode image `i`; it is returned as opened, not converted to RGB."""
        try:
            with self.decoded(self.read(i)) as image:
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

    `classes` are the K names as CLIP should read them, in label order; `split_note` says in one line where
    the division into train and test comes from. `coarse_of` (K,) maps classes to `coarse_classes` where the
    data set has a second level of labels. `skipped` lists the images left out by `without`; `notes` say what else of
    the data set's folder was left out, a line each. `groups` names what stays together, patients or parts, where that
    is known: none is in both splits. `validation` are images that may take the place of the test images.
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
        """Refuse a data set in which a class cannot be distinguished, learnt or found."""
        _check_names(self.name, "classes", self.classes)
        _check_names(self.name, "domains", self.domains)
        for split, labels in (("train", self.train.labels), ("test", self.test.labels)):
            if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes):
                raise FedotpError(
                    f"{self.name}: a {split} label is outside 0 to {len(self.classes) - 1}, the classes known"
                )
        counts = self.counts("train")
        if not counts.all():
            missing = ", ".join(self.classes[k] for k in np.flatnonzero(counts == 0)[:3])
            raise FedotpError(f"{self.name}: {(counts == 0).sum()} of the classes have no training image: {missing}")
        if not len(self.test):
            raise FedotpError(f"{self.name}: the test split is empty; it needs at least one image")
        if self.train.groups is not None and self.test.groups is not None:
            self._require_apart(self.train.groups, self.test.groups)

    def _require_apart(self, train: Ints, test: Ints) -> None:
        """Refuse a group of which images are in train (n,) and in test (m,)."""
        if len(both := np.intersect1d(train, test)):
            first, second = (int(np.flatnonzero(groups == both[0])[0]) for groups in (train, test))
            raise FedotpError(
                f"{self.name}: {counted(len(both), 'group')} in train and in test, for example "
                f"{self.groups[both[0]]!r} with {self.train.name(first)} and {self.test.name(second)}; "
                "put each on one side, or leave the split out"
            )

    def on_validation(self) -> "Dataset":
        """The same, tested on its validation images, which are not trained on: to choose settings by."""
        if self.validation is None:
            raise FedotpError(f"{self.name} has no validation images; leave data.test_split out")
        held = {self.validation.name(i) for i in range(len(self.validation))}
        keep = np.array([self.train.name(i) not in held for i in range(len(self.train))], bool)
        note = f"{self.split_note}; tested on its validation images"
        return replace(self, train=self.train.select(keep), test=self.validation, validation=None, split_note=note)

    def grouped(self, pattern: str) -> "Dataset":
        """The same with groups, named by what the regular expression finds in the names of images: its first part in
        round brackets, or all that it matches.
        """
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
        """Say where a person finds the image `ref`."""
        return self.split(ref.split).where(ref.index)

    def without(self, refs: Iterable[ImageRef]) -> "Dataset":
        """Leave the images `refs` out; they are remembered in `skipped`."""
        left_out = sorted(refs)
        keep = {name: np.ones(len(self.split(name)), bool) for name in SPLITS}
        for ref in left_out:
            keep[ref.split][ref.index] = False
        return replace(
            self,
            train=self.train.select(keep["train"]),
            test=self.test.select(keep["test"]),
            skipped=(*self.skipped, *(self.split(ref.split).name(ref.index) for ref in left_out)),
        )

    def base_and_novel(self) -> tuple["Dataset", "Dataset"]:
        """The first ceil(K / 2) classes in the order of their labels, and the others, numbered from 0 again.

        Each is a data set of its own, with its own images alone.
        """
        n_classes, both = len(self.classes), (self.train, self.test)
        if n_classes < 4:
            raise FedotpError(f"{self.name}: {n_classes} classes are too few for base and novel ones, two of each")
        middle = -(-n_classes // 2)
        return self._only(np.arange(middle), both), self._only(np.arange(middle, n_classes), both)

    def site_number(self, site: str) -> int:
        """The number of the domain called `site`."""
        if site not in self.domains:
            raise FedotpError(f"{self.name} has no site {site!r}; its sites are {listed(self.domains)}")
        return self.domains.index(site)

    def of_site(self, site: str) -> "Dataset":
        """The images of one site (or domain), with the classes it trains on; test images of others are left out."""
        here = self.site_number(site)
        train, test = (split.select(split.domains == here) for split in (self.train, self.test))
        return self._only(np.unique(train.labels), (train, test))

    def _only(self, labels: Ints, splits: tuple[Split, Split]) -> "Dataset":
        """Those images of the splits whose classes are `labels` (k,), rising."""
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
        """SHA-256 over names, classes, labels and domains; the same on every machine."""
        columns = [
            [[split.name(i) for i in range(len(split))], split.labels.tolist(), split.domains.tolist()]
            for split in (self.train, self.test)
        ]
        facts = [self.name, self.classes, self.domains, self.coarse_of, columns]
        return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()


def group_names(names: Sequence[str], pattern: str) -> list[str]:
    """What the regular expression `pattern` finds in each of the names."""
    compiled = re.compile(pattern)
    found = []
    for name in names:
        if (match := compiled.search(name)) is None or not (group := match[1] if compiled.groups else match[0]):
            raise FedotpError(f"data.groups = {pattern!r} finds no group in {name}")
        found.append(group)
    return found


def _check_names(dataset: str, what: str, names: Sequence[str]) -> None:
    if not names:
        raise FedotpError(f"{dataset}: no {what} found")
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if not name:
            raise FedotpError(f"{dataset}: number {i} of the {what} has an empty name")
        if not name.isascii() and any("\ud800" <= c <= "\udfff" for c in name):  # what Python makes of other bytes
            raise FedotpError(f"{dataset}: the name {name!r} of number {i} of the {what} is not UTF-8; rename it")
        if name in seen:
            raise FedotpError(f"{dataset}: numbers {seen[name]} and {i} of the {what} both read {name!r}; rename one")
        seen[name] = i
