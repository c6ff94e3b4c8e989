"""Make the archives of `fedotp.data`'s box from the sources that fetch.sh fetched.

python recipes/box/make_box.py <sources> [--only emoji] [--out src/fedotp/data/box] [--sheets <folder>]

`--sheets` draws contact sheets, to see that every picture is what its folder says.
"""

import argparse
import hashlib
import io
import json
import subprocess
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PER_CLASS = 200  # CIFAR-10 images of a class in train, and as many in test
TWINS = {2119, 2369, 2911, 3177, 3431}  # the photographs of 772, 1335 (twice), 1785 and 509 again: left out
SIDE = 64  # pixels of an emoji; Noto's and Twemoji's files have this size
VENDORS = ("noto", "twemoji", "fluent", "openmoji")

Image.MAX_IMAGE_PIXELS = None
Picture = tuple[str, Image.Image]  # path in the archive without its suffix: <split>/[<domain>/]<class>/<name>


def cifar10(sources: Path) -> Iterable[Picture]:
    """The first `PER_CLASS` images of each class in the official test batch, then as many for our test split."""
    pixels = np.asarray(Image.open(sources / "cifar10/test_batch.png")).reshape(-1, 32, 32, 3)  # one image a row
    labels = np.array(json.loads((sources / "cifar10/test_lables.json").read_text()))
    for label, name in enumerate(CIFAR10):
        rows = [row for row in np.flatnonzero(labels == label) if row not in TWINS][: 2 * PER_CLASS]
        for i, row in enumerate(rows):
            yield f"{'train' if i < PER_CLASS else 'test'}/{name}/{row:04d}", Image.fromarray(pixels[row])


def emoji(sources: Path) -> Iterable[Picture]:
    """The emoji of emoji.txt by every vendor, on white."""
    classes = read_classes(HERE / "emoji.txt")
    draw_openmoji(sources, [code for groups in classes.values() for group in groups for code in group])
    for name, groups in classes.items():
        in_test = choose_test(groups)
        for code in sorted(code for group in groups for code in group):
            split = "test" if code in in_test else "train"
            for vendor in VENDORS:
                yield f"{split}/{vendor}/{name.replace(' ', '_')}/{code}", on_white(find(sources, vendor, code))


def read_classes(path: Path) -> dict[str, list[list[str]]]:
    """Classes, their groups, the code points of a group."""
    classes: dict[str, list[list[str]]] = defaultdict(list)
    name = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.split("#")[0].split()
        if line.startswith("["):
            name = line.strip("[]\n ")
        elif words:
            classes[name].append(words)
    return dict(classes)


def choose_test(groups: list[list[str]]) -> set[str]:
    """Half of a class (rounded down): groups in the order of their SHA-256, those that still fit."""
    room = sum(map(len, groups)) // 2
    chosen: set[str] = set()
    for group in sorted(groups, key=lambda group: hashlib.sha256(group[0].encode()).digest()):
        if len(chosen) + len(group) <= room:
            chosen.update(group)
    return chosen


def draw_openmoji(sources: Path, codes: list[str]) -> None:
    """Turn OpenMoji's SVG files into PNG files of 256 pixels."""
    files = [str(sources / "openmoji/color/svg" / f"{code.upper()}.svg") for code in codes]
    command = ["node", str(HERE / "render.mjs"), str(sources / "resvg"), str(sources / "openmoji/drawn")]
    subprocess.run([*command, *files], check=True)


def find(sources: Path, vendor: str, code: str) -> Image.Image:
    """The drawing; vendors differ in whether they name the emoji presentation selector, FE0F."""
    folder, suffix = {
        "noto": ("noto/img/google/64", "png"),
        "twemoji": ("twemoji/img/twitter/64", "png"),
        "fluent": ("fluent/assets", "webp"),
        "openmoji": ("openmoji/drawn", "png"),
    }[vendor]
    names = (f"{code}.{suffix}", f"{code}-fe0f.{suffix}")
    return Image.open(next(path for name in names if (path := sources / folder / name).is_file()))


def on_white(image: Image.Image) -> Image.Image:
    """Put the drawing, which has transparent parts, on white, then give it its size."""
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image)
    return white.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def write(path: Path, pictures: Iterable[Picture]) -> None:
    """Write a ZIP of lossless WebP files; equal pictures give equal bytes (with one version of libwebp)."""
    count = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, picture in sorted(pictures, key=lambda item: item[0]):
            file = io.BytesIO()
            picture.save(file, "WEBP", lossless=True, quality=100, method=6)
            assert np.array_equal(np.asarray(Image.open(file).convert("RGB")), np.asarray(picture))
            archive.writestr(zipfile.ZipInfo(f"{name}.webp"), file.getvalue())
            count += 1
    content = path.read_bytes()
    print(f"{path}: {count} images, {len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()}")


def draw_sheets(path: Path, folder: Path, columns: int = 24) -> None:
    """Contact sheets to look at: one per domain and split, one row per class, its first images."""
    folder.mkdir(parents=True, exist_ok=True)
    sheets: dict[str, dict[str, list[Image.Image]]] = defaultdict(lambda: defaultdict(list))
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            *above, kind, _ = name.split("/")
            image = Image.open(io.BytesIO(archive.read(name))).resize((48, 48))
            sheets["-".join(above)][kind].append(image)
    for title, rows in sheets.items():
        sheet = Image.new("RGB", (50 * columns, 50 * len(rows)), "grey")
        for y, kind in enumerate(rows):
            for x, image in enumerate(rows[kind][:columns]):
                sheet.paste(image, (50 * x, 50 * y))
        sheet.save(folder / f"{path.stem}-{title}.png")


MAKERS = {"cifar10-mini": cifar10, "emoji": emoji}


def main() -> None:
    """Make one archive or both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--only", choices=MAKERS)
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "src/fedotp/data/box")
    parser.add_argument("--sheets", type=Path)
    arguments = parser.parse_args()
    for name in [arguments.only] if arguments.only else MAKERS:
        path = arguments.out / f"{name}.zip"
        write(path, MAKERS[name](arguments.sources))
        if arguments.sheets:
            draw_sheets(path, arguments.sheets)


if __name__ == "__main__":
    main()
