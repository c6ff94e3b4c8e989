"""Small copies of the data sets' layouts, written the way the official archives, CoOp and DomainBed lay them out."""

import json
import pickle
import struct
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from fedotp.data._names import names_of

DOMAINNET, DOMAINNET10 = names_of("domainnet", "domains"), names_of("domainnet")
OFFICE, OFFICE_CALTECH10 = names_of("office_caltech10", "domains"), names_of("office_caltech10")
FLOWERS102 = names_of("flowers102")


def write_image(path: Path, seed: int = 0) -> None:
    """Write a small image whose content depends on `seed`; the suffix chooses the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def write_tree(root: Path, names: list[str]) -> None:
    for seed, name in enumerate(names):
        write_image(root / name, seed)


def caltech101(root: Path) -> Path:
    folder = root / "caltech-101"
    classes = ["BACKGROUND_Google", "Faces", "Faces_easy", "accordion", "airplanes", "yin_yang"]
    names = [f"101_ObjectCategories/{c}/image_{i:04d}.jpg" for c in classes for i in range(10)]
    write_tree(folder, names)
    return folder


def flowers102(root: Path) -> Path:
    import scipy.io  # slow to import

    folder = root / "oxford_flowers"
    labels = np.arange(306) % 102 + 1  # three images of each flower
    write_tree(folder, [f"jpg/image_{i:05d}.jpg" for i in range(1, 307)])
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": labels[None].astype(np.uint8)}, do_compression=True)
    ids = {"trnid": np.arange(1, 103), "valid": np.arange(103, 205), "tstid": np.arange(205, 307)}
    scipy.io.savemat(folder / "setid.mat", {k: v[None].astype(np.uint16) for k, v in ids.items()})
    return folder


def oxford_pets(root: Path) -> Path:
    folder = root / "oxford_pets"
    breeds = ["Abyssinian", "american_bulldog", "Egyptian_Mau"]
    for split, numbers in (("trainval", (1, 2, 12)), ("test", (30, 31))):
        rows = [(f"{b}_{n}", k + 1) for k, b in enumerate(breeds) for n in numbers]
        write_tree(folder, [f"images/{name}.jpg" for name, _ in rows])
        (folder / "annotations").mkdir(exist_ok=True)
        lines = "".join(f"{name} {label} 1 1\n" for name, label in rows)
        (folder / "annotations" / f"{split}.txt").write_text("#Image CLASS-ID SPECIES BREED ID\n" + lines)
    return folder


def food101(root: Path) -> Path:
    folder = root / "food-101"
    classes = ["apple_pie", "baby_back_ribs"]
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "classes.txt").write_text("\n".join(classes) + "\n")
    for split, numbers in (("train", range(3)), ("test", range(3, 5))):
        rows = [f"{c}/{n}" for c in classes for n in numbers]
        write_tree(folder / "images", [f"{row}.jpg" for row in rows])
        (folder / "meta" / f"{split}.txt").write_text("\n".join(rows))
    return folder


def dtd(root: Path) -> Path:
    folder = root / "dtd"
    (folder / "labels").mkdir(parents=True)
    for start, split in enumerate(("train1", "val1", "test1")):
        rows = [f"{c}/{c}_{start}{n}.jpg" for c in ("banded", "zigzagged") for n in range(2)]
        write_tree(folder / "images", rows)
        (folder / "labels" / f"{split}.txt").write_text("\n".join(rows))
    return folder


class _Python2Pickler(pickle._Pickler):
    """Write bytes as Python 2 wrote its strings, which is what the official CIFAR files hold."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value: bytes) -> None:
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_string


def python2_pickle(path: Path, content: dict[str, object]) -> None:
    with open(path, "wb") as file:
        _Python2Pickler(file, protocol=2).dump({key.encode(): value for key, value in content.items()})


def cifar_batch(path: Path, n: int, labels: dict[str, list[int]], seed: int = 0) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)
    python2_pickle(path, {"data": pixels, **labels})


def cifar10(root: Path) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    python2_pickle(folder / "batches.meta", {"label_names": [name.encode() for name in names]})
    for i, name in enumerate([*(f"data_batch_{b}" for b in range(1, 6)), "test_batch"]):
        cifar_batch(folder / name, 10, {"labels": list(range(10))}, seed=i)
    return folder


def cifar100(root: Path) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir()
    fine = [b"fine_%02d" % k for k in range(100)]
    coarse = [b"coarse_%02d" % k for k in range(20)]
    python2_pickle(folder / "meta", {"fine_label_names": fine, "coarse_label_names": coarse})
    for seed, (name, n) in enumerate((("train", 1000), ("test", 500))):
        labels = [i % 100 for i in range(n)]
        columns = {"fine_labels": labels, "coarse_labels": [k % 20 for k in labels]}
        cifar_batch(folder / name, n, columns, seed)
    return folder


def domain_tree(folder: Path, domains: Sequence[str], classes: Sequence[str], n: int) -> Path:
    names = [f"{d}/{c.replace(' ', '_')}/{i}.jpg" for d in domains for c in classes for i in range(n)]
    write_tree(folder, names)
    return folder


def fedbn_pickles(folder: Path, domains: tuple[str, ...]) -> None:
    """Write FedBN's pickles beside a domain tree: the first image of each class is the test image."""
    for domain in domains:
        for split in ("train", "test"):
            paths, labels = [], []
            for image in sorted((folder / domain).glob("*/*.jpg")):
                if (image.stem == "0") == (split == "test"):
                    paths.append(f"{folder.name}/{image.relative_to(folder).as_posix()}")
                    labels.append("back_pack" if image.parent.name == "backpack" else image.parent.name)
            content = np.array([paths, labels], dtype=object)
            (folder / f"{domain}_{split}.pkl").write_bytes(pickle.dumps(content, protocol=4))


def zhou_split(folder: Path, name: str, rows: dict[str, list[tuple[str, int, str]]]) -> None:
    (folder / f"split_zhou_{name}.json").write_text(json.dumps(rows))


def zhou_layout(
    folder: str, name: str, images: str, classes: dict[str, str], root: Path, *, train: int = 2, val: int = 1
) -> Path:
    """Images of classes in folders and their names, one of each to test."""
    at = root / folder
    rows: dict[str, list[tuple[str, int, str]]] = {"train": [], "val": [], "test": []}
    for label, (place, class_name) in enumerate(classes.items()):
        for i, split in enumerate([*["train"] * train, *["val"] * val, "test"]):
            rows[split].append((f"{place}/{label}{i}.jpg", label, class_name))
    write_tree(at / images, [row[0] for split in rows.values() for row in split])
    zhou_split(at, name, rows)
    return at


def fgvc_aircraft(root: Path) -> Path:
    folder = root / "fgvc_aircraft"
    variants = ["707-320", "Boeing 717"]
    for start, split in enumerate(("train", "val", "test")):
        rows = [(f"{k}{start}{i:05d}", variant) for k, variant in enumerate(variants) for i in range(2)]
        write_tree(folder, [f"images/{image}.jpg" for image, _ in rows])
        lines = "".join(f"{image} {variant}\n" for image, variant in rows)
        (folder / f"images_variant_{split}.txt").write_text(lines)
    (folder / "variants.txt").write_text("\n".join(variants) + "\n")
    return folder


def imagenet(root: Path) -> Path:
    folder = root / "imagenet"
    names = {"n01440764": "tench", "n03773504": "missile", "n04008634": "missile"}
    for split, n in (("train", 3), ("val", 2)):
        write_tree(folder, [f"images/{split}/{c}/{split}_{i}.JPEG" for c in names for i in range(n)])
    lines = [f"{number} {name}\n" for number, name in (*names.items(), ("n15075141", "toilet paper"))]
    (folder / "classnames.txt").write_text("".join(lines))
    return folder


def _domains(folder: str, domains: Sequence[str], classes: Sequence[str], n: int) -> Callable[[Path], Path]:
    return lambda root: domain_tree(root / folder, domains, classes, n)


_EUROSAT = {"AnnualCrop": "AnnualCrop", "Forest": "Forest", "SeaLake": "Sea or Lake"}
_CARS = {"cars_train": "2012 Audi S5 Coupe", "cars_test": "2012 Ram C/V Cargo Van Minivan"}
_UCF = {"Apply_Eye_Makeup": "Apply_Eye_Makeup", "Yo_Yo": "Yo_Yo"}
eurosat = partial(zhou_layout, "eurosat", "EuroSAT", "2750", _EUROSAT)
stanford_cars = partial(zhou_layout, "stanford_cars", "StanfordCars", "", _CARS)
sun397 = partial(zhou_layout, "sun397", "SUN397", "SUN397", {"a/abbey": "abbey", "z/zen_garden": "zen_garden"})
ucf101 = partial(zhou_layout, "ucf101", "UCF101", "UCF-101-midframes", _UCF)
domainnet = _domains("DomainNet", DOMAINNET, (*DOMAINNET10, "aircraft carrier"), 2)
office_caltech10 = _domains("office_caltech_10", OFFICE, OFFICE_CALTECH10, 5)
pacs = _domains("PACS", ("art_painting", "cartoon", "photo", "sketch"), names_of("pacs"), 5)
vlcs = _domains("VLCS", ("Caltech101", "LabelMe", "SUN09", "VOC2007"), names_of("vlcs"), 5)
office_home = _domains(  # folders are Alarm_Clock, ...
    "OfficeHomeDataset_10072016",
    ("Art", "Clipart", "Product", "Real World"),
    [name.title() for name in names_of("office_home")],
    2,
)
office31 = _domains(
    "office31",
    ("amazon/images", "dslr/images", "webcam/images"),
    [name.replace("backpack", "back pack") for name in names_of("office31")],
    2,
)


# name -> (builder, classes, train images, test images, first and last class name, domains)
LAYOUTS: dict[str, tuple[Callable[[Path], Path], int, int, int, tuple[str, str], int]] = {
    "caltech101": (caltech101, 4, 20, 12, ("face", "yin yang"), 1),
    "flowers102": (flowers102, 102, 204, 102, (FLOWERS102[0], FLOWERS102[-1]), 1),
    "oxford_pets": (oxford_pets, 3, 9, 6, ("abyssinian", "egyptian mau"), 1),
    "food101": (food101, 2, 6, 4, ("apple pie", "baby back ribs"), 1),
    "dtd": (dtd, 2, 8, 4, ("banded", "zigzagged"), 1),
    "cifar10": (cifar10, 10, 50, 10, ("airplane", "truck"), 1),
    "cifar100": (cifar100, 100, 1000, 500, ("fine 00", "fine 99"), 1),
    "domainnet": (domainnet, 10, 96, 24, ("bird", "zebra"), 6),
    "office_caltech10": (office_caltech10, 10, 160, 40, ("backpack", "projector"), 4),
    "eurosat": (eurosat, 3, 6, 3, ("annual crop land", "sea or lake"), 1),
    "fgvc_aircraft": (fgvc_aircraft, 2, 4, 4, ("707-320", "boeing 717"), 1),
    "stanford_cars": (stanford_cars, 2, 4, 2, ("2012 audi s5 coupe", "2012 ram c/v cargo van minivan"), 1),
    "sun397": (sun397, 2, 4, 2, ("abbey", "zen garden"), 1),
    "ucf101": (ucf101, 2, 4, 2, ("apply eye makeup", "yo yo"), 1),
    "imagenet": (imagenet, 3, 9, 6, ("tench", "projectile"), 1),
    "pacs": (pacs, 7, 112, 28, ("dog", "person"), 4),
    "office_home": (office_home, 65, 416, 104, ("alarm clock", "webcam"), 4),
    "office31": (office31, 31, 147, 39, ("backpack", "trash can"), 3),
    "vlcs": (vlcs, 5, 80, 20, ("bird", "person"), 4),
}
