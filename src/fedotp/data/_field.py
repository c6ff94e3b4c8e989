"""EuroSAT, StanfordCars, SUN397, UCF101, FGVC-Aircraft and ImageNet, laid out as CoOp prepares them.

The first four have CoOp's list, `split_zhou_*.json`; EuroSAT can do without. FGVC-Aircraft keeps its official lists of
variants, of which CoOp trains on `train` alone, and ImageNet its folders, of which CoOp tests on `val`.
"""

from collections import Counter
from functools import partial
from pathlib import Path

from fedotp.data import _names
from fedotp.data._dataset import Dataset
from fedotp.data._image_files import Item, file_dataset, in_folders, list_folders, relative
from fedotp.data._lists import read_lines
from fedotp.data._split import BY_CLASS, split_by_class
from fedotp.data._zhou import Found, read_coop, read_zhou
from fedotp.errors import FedotpError


def read_eurosat(root: Path) -> Dataset:
    """Read `2750/<class>/*.jpg`; classes are called what CoOp calls them, whichever names the list has."""
    path = root / "split_zhou_EuroSAT.json"
    found = read_zhou(path, "2750") if path.is_file() else _eurosat_folders(root)
    classes = [_names.EUROSAT.get(name, name) for name in found.classes]
    return file_dataset("eurosat", root, **found._replace(classes=classes)._asdict())


def _eurosat_folders(root: Path) -> Found:
    folders = list_folders(root / "2750")
    return Found(folders, *split_by_class(in_folders(root, "2750", folders)), BY_CLASS)


def read_fgvc_aircraft(root: Path) -> Dataset:
    """Read `images/<number>.jpg` by `variants.txt` and `images_variant_{train,test}.txt`."""
    classes = read_lines(root / "variants.txt")
    label_of = {name: k for k, name in enumerate(classes)}
    splits = []
    for split in ("train", "test"):
        path = root / f"images_variant_{split}.txt"
        items: list[Item] = []
        for line in read_lines(path):
            image, _, variant = line.partition(" ")
            if variant not in label_of:
                raise FedotpError(f"{path}: {line[:80]!r} is not 'image variant' with one of {len(classes)} variants")
            items.append((f"images/{relative(image, path)}.jpg", label_of[variant], 0))
        splits.append(items)
    note = "official images_variant_train.txt / images_variant_test.txt (CoOp's split)"
    return file_dataset("fgvc_aircraft", root, classes=classes, train=splits[0], test=splits[1], split_note=note)


def read_imagenet(root: Path) -> Dataset:
    """Read `images/{train,val}/<WordNet number>/*.JPEG`; `classnames.txt` has a line `n01440764 tench` for each."""
    names: dict[str, str] = {}
    path = root / "classnames.txt"
    for line in read_lines(path):
        folder, _, name = line.partition(" ")
        if not name:
            raise FedotpError(f"{path}: {line[:80]!r} should be 'n01440764 tench'")
        names[folder] = name.strip()
    times = Counter(names.values())
    names |= {folder: name for folder, name in _names.IMAGENET_TWICE.items() if times[names.get(folder, "")] > 1}
    folders = list_folders(root / "images" / "train")
    unnamed = [folder for folder in folders if folder not in names]
    if unnamed:
        raise FedotpError(f"{path} has no line for {unnamed[0]}, a folder of {root / 'images' / 'train'}")
    train, test = (in_folders(root, f"images/{split}", folders) for split in ("train", "val"))
    classes = [names[folder] for folder in folders]
    note = "official folders images/train/ and images/val/"
    return file_dataset("imagenet", root, classes=classes, train=train, test=test, split_note=note)


def _needs_list(list_name: str, root: Path) -> Found:
    raise FedotpError(f"{root} has no split_zhou_{list_name}.json, which says what is in its images")


read_stanford_cars, read_sun397, read_ucf101 = (
    partial(read_coop, name, list_name, images, partial(_needs_list, list_name))
    for name, list_name, images in (
        ("stanford_cars", "StanfordCars", ""),
        ("sun397", "SUN397", "SUN397"),
        ("ucf101", "UCF101", "UCF-101-midframes"),
    )
)
