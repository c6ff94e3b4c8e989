"""Odd images are readable, broken ones are found before anything depends on them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from layouts import write_image, write_tree
from PIL import Image

from fedotp.data import Dataset, check_dataset, require_sound
from fedotp.data._check import Broken
from fedotp.data._dataset import ImageRef
from fedotp.data._folder import read_folder
from fedotp.errors import FedotpError

_NOISE = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)


def _one_pixel(path: Path) -> None:
    Image.new("RGB", (1, 1), "red").save(path)


def _cmyk(path: Path) -> None:
    Image.fromarray(_NOISE).convert("CMYK").save(path)


def _palette(path: Path) -> None:
    Image.fromarray(_NOISE).convert("P").save(path)


def _sixteen_bit(path: Path) -> None:
    Image.fromarray(_NOISE[..., 0].astype(np.uint16) * 257).save(path)


def _rotated(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(_NOISE).save(path, exif=exif)


def _webp(path: Path) -> None:
    Image.fromarray(_NOISE).save(path)


def _truncated(path: Path) -> None:
    Image.fromarray(_NOISE).save(path)
    path.write_bytes(path.read_bytes()[:-300])


def _zero_bytes(path: Path) -> None:
    path.write_bytes(b"")


def _text(path: Path) -> None:
    path.write_text("<html>404</html>")


def _broken_png(path: Path) -> None:
    Image.fromarray(_NOISE).save(path)
    content = bytearray(path.read_bytes())
    content[60:70] = b"\xff" * 10
    path.write_bytes(bytes(content))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tree(tmp_path, [f"{s}/{c}/{i}.png" for s in ("train", "test") for c in "ab" for i in range(3)])
    return tmp_path


def _with_odd_image(folder: Path, suffix: str, write: object) -> tuple[Dataset, int]:
    path = folder / "train" / "a" / f"ödd 猫{suffix}"
    write(path)  # type: ignore[operator]
    dataset = read_folder(folder)
    (index,) = (i for i in range(len(dataset.train)) if dataset.train.where(i) == str(path))
    return dataset, index


@pytest.mark.parametrize(
    ("suffix", "write", "mode", "size"),
    [
        (".png", _one_pixel, "RGB", (1, 1)),
        (".jpg", _one_pixel, "RGB", (1, 1)),
        (".jpg", _cmyk, "CMYK", (30, 40)),
        (".gif", _palette, "P", (30, 40)),
        (".png", _palette, "P", (30, 40)),
        (".png", _sixteen_bit, "I;16", (30, 40)),
        (".jpg", _rotated, "RGB", (30, 40)),
        (".WEBP", _webp, "RGB", (30, 40)),
    ],
)
def test_odd_images_are_returned_as_opened(
    suffix: str, write: object, mode: str, size: tuple[int, int], folder: Path
) -> None:
    dataset, index = _with_odd_image(folder, suffix, write)
    image = dataset.train.image(index)
    assert (image.mode, image.size) == (mode, size)
    assert check_dataset(dataset).broken == ()


def test_exif_orientation_is_kept_for_the_preprocessing(folder: Path) -> None:
    dataset, index = _with_odd_image(folder, ".jpg", _rotated)
    assert dataset.train.image(index).getexif()[0x0112] == 6


@pytest.mark.parametrize(
    ("suffix", "write", "reason"),
    [
        (".jpg", _truncated, "truncated"),
        (".jpg", _zero_bytes, "zero bytes"),
        (".png", _zero_bytes, "zero bytes"),
        (".jpg", _text, "not an image"),
        (".png", _broken_png, ""),
    ],
)
def test_broken_images_are_found_named_and_skipped(suffix: str, write: object, reason: str, folder: Path) -> None:
    dataset, index = _with_odd_image(folder, suffix, write)
    path = dataset.train.where(index)
    (broken,) = check_dataset(dataset).broken
    assert broken == Broken(ImageRef("train", index), path, broken.reason)
    assert reason in broken.reason
    assert broken.reason

    with pytest.raises(FedotpError, match="cannot read image") as caught:
        dataset.train.image(index)
    assert path in str(caught.value)
    with pytest.raises(FedotpError, match="1 broken images") as caught:
        require_sound(dataset)
    assert path in str(caught.value)

    sound = require_sound(dataset, skip_broken=True)
    assert sound.skipped == (dataset.train.name(index),)
    assert len(sound.train) == len(dataset.train) - 1
    assert check_dataset(sound).broken == ()
    assert sound.digest != dataset.digest


def test_missing_file_is_broken(folder: Path) -> None:
    dataset = read_folder(folder)
    Path(dataset.test.where(2)).unlink()
    (broken,) = check_dataset(dataset).broken
    assert (broken.ref, broken.reason) == (ImageRef("test", 2), "No such file or directory")


def test_sound_data_pass_unchanged(folder: Path) -> None:
    dataset = read_folder(folder)
    assert require_sound(dataset) is dataset


def test_skipping_the_last_image_of_a_class_is_an_error(folder: Path) -> None:
    for i in range(3):
        (folder / "train" / "b" / f"{i}.png").write_bytes(b"")
    with pytest.raises(FedotpError, match="no training image: b"):
        require_sound(read_folder(folder), skip_broken=True)


def test_duplicates_across_train_and_test_are_reported(folder: Path) -> None:
    shutil.copy(folder / "train/a/1.png", folder / "test/b/copy.png")
    shutil.copy(folder / "train/a/1.png", folder / "train/a/again.png")
    dataset = read_folder(folder)
    report = check_dataset(dataset)
    ((train, test),) = report.duplicates
    assert Path(dataset.where(train)).parent.name == "a"
    assert dataset.where(test) == str(folder / "test/b/copy.png")
    assert report.n_images == 14


def test_duplicates_within_train_and_under_two_labels_are_reported(folder: Path) -> None:
    shutil.copy(folder / "train/a/1.png", folder / "train/a/again.png")
    shutil.copy(folder / "train/b/0.png", folder / "train/a/wrong.png")
    shutil.copy(folder / "train/b/1.png", folder / "test/a/wrong.png")
    dataset = read_folder(folder)
    report = check_dataset(dataset)

    def names(pairs: tuple[tuple[ImageRef, ImageRef], ...]) -> list[tuple[str, ...]]:
        return [tuple(dataset.split(ref.split).name(ref.index) for ref in pair) for pair in pairs]

    assert names(report.twice) == [("train/a/1.png", "train/a/again.png"), ("train/a/wrong.png", "train/b/0.png")]
    assert names(report.duplicates) == [("train/b/1.png", "test/a/wrong.png")]
    assert names(report.contradictions) == [
        ("train/a/wrong.png", "train/b/0.png"),
        ("train/b/1.png", "test/a/wrong.png"),
    ]


def test_progress_is_told_of_every_image(folder: Path) -> None:
    calls: list[None] = []
    check_dataset(read_folder(folder), workers=3, on_image=lambda: calls.append(None))
    assert len(calls) == 12


def test_broken_order_does_not_depend_on_the_threads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedotp.data._check._BLOCK", 5)  # 13 images: two whole blocks and a rest
    for name in ("train/a/0.png", "train/b/2.png", "test/a/1.png"):
        (folder / name).write_bytes(b"")
    write_image(folder / "train/a/9.png")
    dataset = read_folder(folder)
    reports = [check_dataset(dataset, workers=workers) for workers in (1, 4)]
    assert reports[0] == reports[1]
    assert [Path(b.where).relative_to(folder).as_posix() for b in reports[0].broken] == [
        "train/a/0.png",
        "train/b/2.png",
        "test/a/1.png",
    ]
