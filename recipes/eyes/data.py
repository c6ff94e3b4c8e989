"""The folder DATA of the study, from public copies of five data sets.

    git clone https://github.com/cyizhuo/CIFAR-10-dataset SOURCES/cifar
    git clone https://github.com/MachineLearning2020/Homework2-Caltech101 SOURCES/caltech
    git clone https://github.com/MachineLearning2020/Homework3-PACS SOURCES/pacs
    git clone https://github.com/guebin/oxford-pets-cascam SOURCES/pets
    mkdir SOURCES/office      # amazon, caltech, dslr and webcam of Office-Caltech10, each with a folder per class
    python -m recipes.eyes.data SOURCES DATA

Writes DATA/cifar, DATA/caltech, DATA/office, DATA/PACS, DATA/pets, and DATA/masks with the outlines of the pets under
test. README.md lists which images are taken. Nothing is drawn at random.
"""

import argparse
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

CIFAR_EVERY = 5  # training images
PACS_EVERY = 3
PETS = {"trainval": 40, "test": 50}  # images of each class
PETS_SIZE = 224  # pixels, the size that the tower sees; the public copy is square
CALTECH = 20  # images of each class for training, and as many for tests
CALTECH_CLASSES = {  # those with published features
    "accordion", "airplanes", "ant", "barrel", "beaver", "cannon", "chair", "chandelier", "crayfish", "cup",
    "dalmatian", "dragonfly", "electric guitar", "elephant", "flamingo", "grand piano", "lamp", "laptop",
    "leopards", "llama", "motorbikes", "pizza", "platypus", "revolver", "rooster", "saxophone", "schooner",
    "scissors", "scorpion", "soccer ball", "starfish", "stop sign", "strawberry", "tick", "trilobite", "umbrella",
}  # fmt: skip
WITHOUT_FEATURES = {"calculator", "headphones"}
PET_CLASSES = {  # those with published features
    "basset hound", "beagle", "boxer", "chihuahua", "egyptian mau", "english setter", "german shorthaired",
    "great pyrenees", "japanese chin", "keeshond", "leonberger", "miniature pinscher", "newfoundland", "persian",
    "pomeranian", "pug", "saint bernard", "samoyed", "scottish terrier", "siamese", "staffordshire bull terrier",
    "wheaten terrier", "yorkshire terrier",
}  # fmt: skip


def copy(paths: Iterable[Path], source: Path, target: Path) -> None:
    """Copy files, keeping their places below `source`."""
    for path in paths:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def cifar(source: Path, target: Path) -> None:
    """Copy every fifth training image by path, and all test images."""
    copy(sorted(source.glob("train/*/*"))[::CIFAR_EVERY], source, target)
    copy(source.glob("test/*/*"), source, target)


def caltech(source: Path, target: Path) -> None:
    """Copy the first images of each class in the lists of the public copy."""
    for split in ("train", "test"):
        taken: dict[str, int] = defaultdict(int)
        for line in (source / f"{split}.txt").read_text().splitlines():
            folder = line.partition("/")[0]
            if folder.lower().replace("_", " ") in CALTECH_CLASSES and taken[folder] < CALTECH:
                taken[folder] += 1
                copy([source / "101_ObjectCategories" / line], source / "101_ObjectCategories", target / split)


def office(source: Path, target: Path) -> None:
    """Copy the classes that have features."""
    copy((path for path in source.glob("*/*/*") if path.parent.name not in WITHOUT_FEATURES), source, target)


def pacs(source: Path, target: Path) -> None:
    """Copy every third image by path."""
    copy(sorted((source / "PACS").glob("*/*/*"))[::PACS_EVERY], source / "PACS", target)


def pets(source: Path, target: Path, masks: Path) -> None:
    """Copy the first images of each class in the official lists, smaller, and the outlines of those under test."""
    for split, most in PETS.items():
        taken: dict[str, int] = defaultdict(int)
        for line in (source / "annotations" / f"{split}.txt").read_text().splitlines():
            name = line.split()[0]
            label = name.rpartition("_")[0].replace("_", " ").lower()
            image = source / "original" / f"{name}.jpg"
            if label not in PET_CLASSES or taken[label] >= most or not image.exists():
                continue
            taken[label] += 1
            place = target / {"trainval": "train", "test": "test"}[split] / label / f"{name}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            size = PETS_SIZE, PETS_SIZE
            Image.open(image).convert("RGB").resize(size, Image.Resampling.BICUBIC).save(place, quality=90)
            if split == "test":
                masks.mkdir(parents=True, exist_ok=True)
                trimap = Image.open(source / "annotations" / "trimaps" / f"{name}.png")
                trimap.resize(size, Image.Resampling.NEAREST).save(masks / f"{name}.png")


def main() -> None:
    """Make the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sources", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    cifar(given.sources / "cifar", given.out / "cifar")
    caltech(given.sources / "caltech", given.out / "caltech")
    office(given.sources / "office", given.out / "office")
    pacs(given.sources / "pacs", given.out / "PACS")
    pets(given.sources / "pets", given.out / "pets", given.out / "masks")
    for folder in sorted(given.out.iterdir()):
        print(f"{folder}: {sum(path.is_file() for path in folder.rglob('*')):,} files")


if __name__ == "__main__":
    main()
