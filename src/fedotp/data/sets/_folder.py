"""Anyone's images: a folder per class, or `domain/class`, each also with `train` and `test` folders."""

import os
from collections.abc import Sequence
from pathlib import Path

from fedotp.data.sets._dataset import ONE_DOMAIN, Dataset
from fedotp.data.sets._image_files import Item, file_dataset, walk_images
from fedotp.data.sets._split import BY_DOMAIN, split_by_domain
from fedotp.errors import FedotpError

_TRAIN = ("train", "training")
_TEST = ("test", "testing", "val", "valid", "validation")  # the first one found is the test split


def read_folder(root: Path) -> Dataset:
    """Read `[split/]class/image`, `[split/]domain/class/image` or `domain/split/class/image` below `root`.

    `split` is `train` or `test`; where there is no `test`, `val` takes its place. Without split folders the
    split is drawn once, 80 % of every domain for training.
    """
    if not os.path.isdir(root):
        raise FedotpError(f"{root} is not a folder")
    paths = list(walk_images(root))
    folders = [tuple(path.split("/")[:-1]) for path in paths]
    level = _split_level(folders)
    # what remains of each path: (class,) or (domain, class)
    places = [f if level is None else f[:level] + f[level + 1 :] for f in folders]
    example = {len(place): path for path, place in zip(paths, places, strict=True)}
    if len(example) > 1 or not 1 <= min(example) <= 2:
        raise FedotpError(
            f"{root}: images must all be at class/ or all at domain/class/, not {', '.join(example.values())}"
        )
    domains = sorted({place[0] for place in places}) if 2 in example else ONE_DOMAIN
    classes = sorted({place[-1] for place in places})
    domain_of = {name: d for d, name in enumerate(domains)}
    label_of = {name: k for k, name in enumerate(classes)}
    items = [(path, label_of[place[-1]], domain_of.get(place[0], 0)) for path, place in zip(paths, places, strict=True)]
    if level is None:
        train, test = split_by_domain(items)
        note = BY_DOMAIN
    else:
        train, test, note = _by_split_folder(items, [f[level].lower() for f in folders], root)
    return file_dataset(
        root.resolve().name, root, classes=classes, domains=domains, train=train, test=test, split_note=note
    )


def _split_level(folders: Sequence[tuple[str, ...]]) -> int | None:
    """Return the level at which every path has a split folder; a class may well be called `train`."""
    for level in (0, 1):
        if all(len(f) > level + 1 and f[level].lower() in _TRAIN + _TEST for f in folders):
            return level
    return None


def _by_split_folder(items: Sequence[Item], splits: Sequence[str], root: Path) -> tuple[list[Item], list[Item], str]:
    """Return train items, test items and where the split comes from."""
    test_name = next((name for name in _TEST if name in splits), None)
    train = [item for item, split in zip(items, splits, strict=True) if split in _TRAIN]
    test = [item for item, split in zip(items, splits, strict=True) if split == test_name]
    if not train or test_name is None:
        raise FedotpError(f"{root} has only {' and '.join(sorted(set(splits)))}/; it needs train/ and test/")
    return train, test, f"folders train/ and {test_name}/"
