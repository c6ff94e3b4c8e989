"""The user's own images in folders `class` or `domain/class`, optionally with `train` and `test` folders."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from fedotp._text import counted
from fedotp.data._dataset import ONE_DOMAIN, Dataset, group_names
from fedotp.data._image_files import Item, file_dataset, walk_images
from fedotp.data._names import readable, same_name
from fedotp.data._split import TEST, TRAIN, VALIDATION, drawn_split
from fedotp.errors import FedotpError

_TEST = (*TEST, *VALIDATION)  # the first one found is the test split


def read_folder(root: Path, *, groups: str = "") -> Dataset:
    """Read `[split/]class/image`, `[split/]domain/class/image` or `domain/split/class/image` below `root`.

    `split` is `train` or `test`; if there is no `test`, `val` replaces it. Without split folders the split is drawn
    once, 80 % of every domain for training. `groups`, a regular expression on paths, defines groups that are not split.
    """
    if not os.path.isdir(root):
        raise FedotpError(f"{root} is not a folder")
    paths, notes = walk_images(root)
    folders = [tuple(path.split("/")[:-1]) for path in paths]
    levels = (i for i in (0, 1) if all(len(f) > i + 1 and f[i].lower() in TRAIN + _TEST for f in folders))
    level = next(levels, None)  # of the split folders in every path; a class may also be named `train`
    # each path without its split: (class,) or (domain, class)
    places = [f if level is None else f[:level] + f[level + 1 :] for f in folders]
    example = {len(place): path for path, place in zip(paths, places, strict=True)}
    if len(example) > 1 or not 1 <= min(example) <= 2:
        found = ", ".join(example.values())
        raise FedotpError(f"{root}: images must all be in class/ or all in domain/class/, got {found}")
    if alike := same_name([place[-1] for place in places]):
        one, other = ("/".join(folders[i]) for i in alike)
        raise FedotpError(
            f"{root}: the classes of {one}/ and {other}/ have the same name {readable(places[alike[0]][-1])!r}; "
            "rename one folder: as the other for the same class, by a different word for a different class"
        )
    domains = sorted({place[0] for place in places}) if 2 in example else ONE_DOMAIN
    classes = sorted({place[-1] for place in places})
    domain_of = {name: d for d, name in enumerate(domains)}
    label_of = {name: k for k, name in enumerate(classes)}
    items: list[Item] = [
        (path, label_of[place[-1]], domain_of.get(place[0], 0)) for path, place in zip(paths, places, strict=True)
    ]
    named = group_names(paths, groups) if groups else None
    validation: list[Item] = []
    if level is not None:
        splits = [f[level].lower() for f in folders]
        train, test, note, unused = _by_split_folder(items, splits, root)
        tested = set(test)
        validation = [
            item for item, split in zip(items, splits, strict=True) if split in VALIDATION and item not in tested
        ]
        notes += unused
    else:
        train, test, note = drawn_split(items, named)
    name = root.resolve().name
    return file_dataset(
        name,
        root,
        classes=classes,
        domains=domains,
        train=train,
        test=test,
        validation=validation,
        split_note=note,
        notes=notes,
        group_of=None if named is None else dict(zip(paths, named, strict=True)),
    )


def _by_split_folder(
    items: Sequence[Item], splits: Sequence[str], root: Path
) -> tuple[list[Item], list[Item], str, tuple[str, ...]]:
    """Return train items, test items, the note on the split, and notes on unused images."""
    test_name = next((name for name in _TEST if name in splits), None)
    train = [item for item, split in zip(items, splits, strict=True) if split in TRAIN]
    test = [item for item, split in zip(items, splits, strict=True) if split == test_name]
    if not train or test_name is None:
        raise FedotpError(f"{root} has only {' and '.join(sorted(set(splits)))}/: must have train/ and test/")
    trained = {label for _, label, _ in train}
    if (only := next((path for path, label, _ in test if label not in trained), None)) is not None:
        raise FedotpError(
            f"{root}: {PurePosixPath(only).parent}/ is a class without training images; "
            f"add some to its folder in train/, or remove it from {test_name}/"
        )
    unused = Counter(split for split in splits if split not in (*TRAIN, test_name))
    notes = (f"skipped: {counted(n, 'image')} in {name}/; {test_name}/ is the test split" for name, n in unused.items())
    return train, test, f"folders train/ and {test_name}/", tuple(notes)
