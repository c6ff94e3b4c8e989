"""Listing of image files and construction of their data set, for all readers of files."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from fedotp.data._dataset import ONE_DOMAIN, Dataset, ImageFiles, Split
from fedotp.data._names import readable
from fedotp.errors import FedotpError
from fedotp.images import is_dicom_file

Item = tuple[str, int, int]  # an image: path below the data set's folder, label, domain

IMAGE_SUFFIXES = (
    *(".avif", ".bmp", ".dcm", ".dicom", ".gif", ".heic", ".heif"),
    *(".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"),
)
_MAX_DEPTH = 3  # split/domain/class
_IGNORED = ("__MACOSX", "@eaDir")  # folders that archives and disks add, with files of the same names

# Unsupported image formats, and packages that can convert them.
_UNSUPPORTED = {
    ".nii.gz": "nibabel",
    ".nii": "nibabel",
    ".jp2": "Pillow",
    ".dng": "rawpy",
    ".nef": "rawpy",
    ".cr2": "rawpy",
    ".arw": "rawpy",
}


def list_images(folder: Path) -> list[str]:
    """Return the names of the image files directly in `folder`, sorted by code point."""
    try:
        return _images_of(folder, os.listdir(folder))
    except OSError as error:
        raise FedotpError(f"cannot list {folder}: {error.strerror}") from error


def list_folders(folder: Path) -> list[str]:
    """Return the names of the visible folders directly in `folder`, sorted by code point."""
    try:
        return _visible(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError as error:
        raise FedotpError(f"cannot list {folder}: {error.strerror}") from error


def in_folders(root: Path, images: str, folders: Sequence[str]) -> list[Item]:
    """List the images in `images`/<folder>/ below `root`; the label is the folder's index in `folders`."""
    return [
        (f"{images}/{folder}/{name}", label, 0)
        for label, folder in enumerate(folders)
        for name in list_images(root / images / folder)
    ]


def walk_images(root: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return relative paths of all images below `root`, in a fixed order, and notes on skipped files.

    A folder without images and folders is an error: a class whose images are missing. So is one deeper than
    `_MAX_DEPTH`, which also ends cycles of links.
    """
    paths: list[str] = []
    unread: Counter[str] = Counter()
    for folder, names, files in os.walk(root, followlinks=True):
        names[:] = _visible(names)
        images, suffixes = _images_of(folder, files), (unread_suffix(f) for f in files if not f.startswith("."))
        others = Counter(suffix for suffix in suffixes if suffix)
        if not images and not names:
            raise FedotpError("; ".join([f"no image in {folder}", *_notes(others), "add some or remove the folder"]))
        prefix = PurePosixPath(Path(folder).relative_to(root).as_posix())
        if len(prefix.parts) > _MAX_DEPTH:
            raise FedotpError(f"{folder} is deeper than split/domain/class; move its images up")
        paths += images if not prefix.parts else [f"{prefix}/{image}" for image in images]
        unread += others
    return paths, _notes(unread)


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith(".") and name not in _IGNORED)


def is_image(folder: str | Path, name: str) -> bool:
    """True if the file `name` in `folder` is an image by its suffix, or DICOM with a numeric suffix or none."""
    if name.startswith("."):
        return False
    suffix = os.path.splitext(name)[1].lower()
    if suffix in IMAGE_SUFFIXES:
        return True
    return (not suffix or suffix[1:].isdecimal()) and is_dicom_file(os.path.join(folder, name))


def _images_of(folder: str | Path, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if is_image(folder, name))


def unread_suffix(name: str) -> str:
    """Return the suffix of an unsupported image format; "" for other files."""
    return next((suffix for suffix in _UNSUPPORTED if name.lower().endswith(suffix)), "")


def _notes(unread: Counter[str]) -> tuple[str, ...]:
    """Return a note on skipped files and how to convert them, if any."""
    if not unread:
        return ()
    kinds = ", ".join(f"{n:,} {suffix}" for suffix, n in sorted(unread.items()))
    return (f"skipped unsupported images: {kinds}; {how_to_convert(unread)}",)


def how_to_convert(suffixes: Iterable[str]) -> str:
    """Return advice on the conversion of unsupported images."""
    return f"convert them to PNG or JPEG, for example with {' and '.join(sorted({_UNSUPPORTED[s] for s in suffixes}))}"


def relative(path: str, listed_in: Path) -> str:
    """Return `path` with forward slashes; it must be inside the data set's folder."""
    pure = PurePosixPath(path.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise FedotpError(f"{listed_in} lists {path!r}: must be a path inside the data set's folder")
    return str(pure)


def file_dataset(
    name: str,
    root: Path,
    *,
    classes: Sequence[str],
    domains: Sequence[str] = ONE_DOMAIN,
    train: Sequence[Item],
    test: Sequence[Item],
    split_note: str,
    validation: Sequence[Item] = (),
    notes: tuple[str, ...] = (),
    group_of: Mapping[str, str] | None = None,
) -> Dataset:
    """Create a data set of image files below `root`; class names become plain words.

    At least one listed file of every class must exist, to detect a wrong layout early. The check that decodes every
    image finds single missing files. `group_of` maps paths to groups.
    """
    groups = sorted(set(group_of.values())) if group_of is not None else []
    number_of = {group: number for number, group in enumerate(groups)}
    numbers = None if group_of is None else {path: number_of[group] for path, group in group_of.items()}
    wanted = dict(enumerate(classes))
    for path, label, _ in train:
        if label in wanted and (root / path).is_file():
            del wanted[label]
    if wanted:
        label, missing = next(iter(wanted.items()))
        example = next((f", for example {root / item[0]}" for item in train if item[1] == label), "")
        raise FedotpError(f"{name}: no image of class {missing!r} below {root}{example}")
    return Dataset(
        name=name,
        classes=tuple(readable(c) for c in classes),
        domains=tuple(domains),
        train=_split(root, train, numbers),
        test=_split(root, test, numbers),
        split_note=split_note,
        validation=_split(root, validation, numbers) if validation else None,
        notes=notes,
        groups=tuple(groups),
    )


def _split(root: Path, items: Sequence[Item], groups: Mapping[str, int] | None) -> Split:
    columns = np.array([item[1:] for item in items], np.int64).reshape(-1, 2)  # labels, domains
    files = ImageFiles(root, tuple(item[0] for item in items))
    numbers = None if groups is None else np.array([groups[item[0]] for item in items], np.int64)
    return Split(files, np.arange(len(items)), columns[:, 0], columns[:, 1], numbers)
