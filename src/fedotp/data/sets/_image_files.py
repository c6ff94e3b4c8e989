"""What the readers of files share: listing images, and making the data set of them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from fedotp.data.sets._dataset import ONE_DOMAIN, Dataset, ImageFiles, Split
from fedotp.data.sets._names import readable
from fedotp.errors import FedotpError

Item = tuple[str, int, int]  # an image: path below the data set's folder, label, domain

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_MAX_DEPTH = 3  # split/domain/class


def list_images(folder: Path) -> list[str]:
    """Return the names of the image files directly in `folder`, sorted by code point."""
    try:
        return sorted(
            name for name in os.listdir(folder) if not name.startswith(".") and name.lower().endswith(IMAGE_SUFFIXES)
        )
    except OSError as error:
        raise FedotpError(f"cannot list {folder}: {error.strerror}") from error


def list_folders(folder: Path) -> list[str]:
    """Return the names of the visible folders directly in `folder`, sorted by code point."""
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise FedotpError(f"cannot list {folder}: {error.strerror}") from error


def in_folders(root: Path, images: str, folders: Sequence[str]) -> list[Item]:
    """List the images in `images`/<folder>/ below `root`; the label is the folder's place among `folders`."""
    return [
        (f"{images}/{folder}/{name}", label, 0)
        for label, folder in enumerate(folders)
        for name in list_images(root / images / folder)
    ]


def walk_images(root: Path) -> Iterator[str]:
    """Yield every image below `root` as a relative path with forward slashes, in a fixed order.

    A folder without images and folders is an error: it is a class whose images are missing. So is one deeper
    than `_MAX_DEPTH`, which also ends a circle of links.
    """
    for folder, names, _ in os.walk(root, followlinks=True):
        names[:] = sorted(name for name in names if not name.startswith("."))
        images = list_images(Path(folder))
        if not images and not names:
            raise FedotpError(f"no image in {folder}; add some or remove the folder")
        prefix = PurePosixPath(Path(folder).relative_to(root).as_posix())
        if len(prefix.parts) > _MAX_DEPTH:
            raise FedotpError(f"{folder} is deeper than split/domain/class; move its images up")
        yield from images if not prefix.parts else [f"{prefix}/{image}" for image in images]


def relative(path: str, listed_in: Path) -> str:
    """Return `path` with forward slashes, refusing one that leaves the data set's folder."""
    pure = PurePosixPath(path.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise FedotpError(f"{listed_in} lists {path!r}; a path must stay below the data set's folder")
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
) -> Dataset:
    """Make the data set whose images are files below `root`; class names become plain words.

    Every class must have at least one of its listed files, so that a wrong layout shows at once. Single
    missing files are left to the check that decodes every image.
    """
    wanted = dict(enumerate(classes))
    for path, label, _ in train:
        if label in wanted and (root / path).is_file():
            del wanted[label]
    if wanted:
        label, missing = next(iter(wanted.items()))
        example = next((f", for example {root / item[0]}" for item in train if item[1] == label), "")
        raise FedotpError(f"{name}: no image of class {missing!r} found below {root}{example}")
    return Dataset(
        name=name,
        classes=tuple(readable(c) for c in classes),
        domains=tuple(domains),
        train=_split(root, train),
        test=_split(root, test),
        split_note=split_note,
    )


def _split(root: Path, items: Sequence[Item]) -> Split:
    columns = np.array([item[1:] for item in items], np.int64).reshape(-1, 2)  # labels, domains
    files = ImageFiles(root, tuple(item[0] for item in items))
    return Split(files, np.arange(len(items)), columns[:, 0], columns[:, 1])
