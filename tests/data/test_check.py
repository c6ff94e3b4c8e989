"""Odd images are readable, broken ones are found before anything depends on them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from layouts import write_image, write_tree
from PIL import Image
from store_made import saved

from fedotp.data import Dataset, check_dataset
from fedotp.data._check import Broken
from fedotp.data._dataset import ImageRef
from fedotp.data._folder import read_folder
from fedotp.errors import FedotpError

_NOISE = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tree(tmp_path, [f"{s}/{c}/{i}.png" for s in ("train", "test") for c in "ab" for i in range(3)])
    return tmp_path


PICTURE, DOT = Image.fromarray(_NOISE), Image.new("RGB", (1, 1), "red")
ROTATED = Image.Exif()
ROTATED[0x0112] = 6
PNG = saved(PICTURE, "PNG")


def _with_odd_image(folder: Path, suffix: str, content: bytes) -> tuple[Dataset, int]:
    path = folder / "train" / "a" / f"ödd 猫{suffix}"
    path.write_bytes(content)
    dataset = read_folder(folder)
    (index,) = (i for i in range(len(dataset.train)) if dataset.train.where(i) == str(path))
    return dataset, index


@pytest.mark.parametrize(
    ("suffix", "content", "mode", "size"),
    [
        (".png", saved(DOT, "PNG"), "RGB", (1, 1)),
        (".jpg", saved(PICTURE.convert("CMYK"), "JPEG"), "CMYK", (30, 40)),
        (".gif", saved(PICTURE.convert("P"), "GIF"), "P", (30, 40)),
        (".png", saved(PICTURE.convert("P"), "PNG"), "P", (30, 40)),
        (".png", saved(Image.fromarray(_NOISE[..., 0].astype(np.uint16) * 257), "PNG"), "I;16", (30, 40)),
        (".jpg", saved(PICTURE, "JPEG", exif=ROTATED), "RGB", (30, 40)),
        (".WEBP", saved(PICTURE, "WEBP"), "RGB", (30, 40)),
    ],
    ids=["dot", "cmyk", "gif", "palette", "16-bits", "rotated", "webp"],
)
def test_odd_images_are_returned_as_opened(
    suffix: str, content: bytes, mode: str, size: tuple[int, int], folder: Path, request: pytest.FixtureRequest
) -> None:
    dataset, index = _with_odd_image(folder, suffix, content)
    image = dataset.train.image(index)
    assert (image.mode, image.size) == (mode, size)
    if "rotated" in request.node.name:  # it is kept for the preprocessing
        assert image.getexif()[0x0112] == 6
    assert check_dataset(dataset).broken == ()


@pytest.mark.parametrize(
    ("suffix", "content", "reason"),
    [
        (".jpg", saved(PICTURE, "JPEG")[:-300], "truncated"),
        (".jpg", b"", "zero bytes"),
        (".jpg", b"<html>404</html>", "not an image"),
        (".png", PNG[:60] + b"\xff" * 10 + PNG[70:], ""),
        (".png", None, "No such file or directory"),
    ],
    ids=["truncated", "empty", "text", "overwritten", "missing"],
)
def test_broken_images_are_found_named_and_skipped(
    suffix: str, content: bytes | None, reason: str, folder: Path
) -> None:
    dataset, index = _with_odd_image(folder, suffix, content or b"")
    if content is None:
        Path(dataset.train.where(index)).unlink()
    path = dataset.train.where(index)
    (broken,) = check_dataset(dataset).broken
    assert broken == Broken(ImageRef("train", index), path, broken.reason)
    assert reason in broken.reason
    assert broken.reason

    with pytest.raises(FedotpError, match="cannot read image") as caught:
        dataset.train.image(index)
    assert path in str(caught.value)
    sound = dataset.without([broken.ref])
    assert sound.skipped == (dataset.train.name(index),)
    assert len(sound.train) == len(dataset.train) - 1
    assert check_dataset(sound).broken == ()
    assert sound.digest != dataset.digest


def test_skipping_the_last_image_of_a_class_is_an_error(folder: Path) -> None:
    for i in range(3):
        (folder / "train" / "b" / f"{i}.png").write_bytes(b"")
    dataset = read_folder(folder)
    with pytest.raises(FedotpError, match="no training image: b"):
        dataset.without(broken.ref for broken in check_dataset(dataset).broken)


def test_duplicates_within_train_and_under_two_labels_are_reported(folder: Path) -> None:
    shutil.copy(folder / "train/a/1.png", folder / "train/a/again.png")
    shutil.copy(folder / "train/b/0.png", folder / "train/a/wrong.png")
    shutil.copy(folder / "train/b/1.png", folder / "test/a/wrong.png")
    dataset = read_folder(folder)
    report = check_dataset(dataset)

    def names(pairs: tuple[tuple[ImageRef, ImageRef], ...]) -> list[tuple[str, ...]]:
        return [tuple(dataset.split(ref.split).name(ref.index) for ref in pair) for pair in pairs]

    assert report.n_images == 15
    assert names(report.twice) == [("train/a/1.png", "train/a/again.png"), ("train/a/wrong.png", "train/b/0.png")]
    assert names(report.duplicates) == [("train/b/1.png", "test/a/wrong.png")]
    assert names(report.contradictions) == [
        ("train/a/wrong.png", "train/b/0.png"),
        ("train/b/1.png", "test/a/wrong.png"),
    ]


def test_broken_order_does_not_depend_on_the_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedotp.data._check._BLOCK", 5)  # 13 images: two whole blocks and a rest
    for name in ("train/a/0.png", "train/b/2.png", "test/a/1.png"):
        (folder / name).write_bytes(b"")
    write_image(folder / "train/a/9.png")
    dataset = read_folder(folder)
    calls: list[None] = []
    reports = [check_dataset(dataset, workers=n, on_image=lambda: calls.append(None)) for n in (1, 4)]
    assert len(calls) == 2 * 13
    assert reports[0] == reports[1]
    assert [Path(b.where).relative_to(folder).as_posix() for b in reports[0].broken] == [
        "train/a/0.png",
        "train/b/2.png",
        "test/a/1.png",
    ]
