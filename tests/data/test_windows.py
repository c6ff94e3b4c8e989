"""Pictures of more than 8 bits are seen through a window; photos of phones are read."""

import io
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, features
from store_made import saved, tiny_clip

from data.dicom_made import dicom
from fedotp.clip import EvalTransform, TrainTransform, to_rgb
from fedotp.config import Config
from fedotp.data import check_dataset, clipped_note
from fedotp.data._folder import read_folder
from fedotp.data.store import encode
from fedotp.errors import FedotpError
from fedotp.images import _decode, decode_image

RNG = np.random.default_rng(0)


def grey(content: bytes, window: str = "file") -> NDArray[np.uint8]:
    return np.asarray(to_rgb(decode_image(content), window))[..., 0]


def scaled(values: NDArray[np.generic], low: float, high: float) -> NDArray[np.float64]:
    """The formula, written again."""
    return np.rint(255 * np.minimum(1, np.maximum(0, (values.astype(np.float64) - low) / (high - low))))


def tiff_of_12_bits(values: NDArray[np.uint16]) -> bytes:
    """Two numbers in three bytes, which Pillow reads and does not write."""
    height, width = values.shape
    a, b = values[:, ::2], values[:, 1::2]
    packed = np.stack([a >> 4, (a & 15) << 4 | b >> 8, b & 255], -1).astype(np.uint8).tobytes()
    tags = {256: width, 257: height, 258: 12, 259: 1, 262: 1, 273: 0, 277: 1, 278: height, 279: len(packed)}
    tags[273] = 8 + 2 + 12 * len(tags) + 4
    fields = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + fields + bytes(4) + packed


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_16_bits_are_seen_in_full_in_what_is_there_and_in_a_range(form: str) -> None:
    values = RNG.integers(200, 4096, (9, 11)).astype(np.uint16)
    content = saved(Image.fromarray(values), form)
    for window in ("file", "full"):
        np.testing.assert_array_equal(grey(content, window), scaled(values, 0, 65535))
    np.testing.assert_array_equal(grey(content, "data"), scaled(values, values.min(), values.max()))
    np.testing.assert_array_equal(grey(content, "0..4095"), scaled(values, 0, 4095))
    np.testing.assert_array_equal(grey(content, "1000.5/301"), scaled(values, 850, 1150))


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_floats_and_32_bits_are_seen_in_what_is_there(kind: type) -> None:
    values = RNG.normal(0, 1000, (6, 8)).astype(kind)
    content = saved(Image.fromarray(values), "TIFF")
    np.testing.assert_array_equal(grey(content), scaled(values, values.min(), values.max()))
    np.testing.assert_array_equal(grey(content, "-100..900"), scaled(values, -100, 900))


def test_one_grey_and_numbers_that_are_none_do_no_harm() -> None:
    assert (grey(saved(Image.fromarray(np.full((3, 3), 700, np.uint16)), "PNG"), "data") == 0).all()
    holes = np.array([[np.nan, 1, 2, np.inf]], np.float32)
    assert grey(saved(Image.fromarray(holes), "TIFF"))[0, 1:3].tolist() == [0, 255]


def test_12_bits_and_greys_in_which_zero_is_white() -> None:
    values = RNG.integers(0, 4096, (6, 8)).astype(np.uint16)
    np.testing.assert_array_equal(grey(tiff_of_12_bits(values)), scaled(values, 0, 4095))
    values = RNG.integers(0, 65536, (6, 8)).astype(np.uint16)
    content = saved(Image.fromarray(values), "TIFF", tiffinfo={262: 0})
    np.testing.assert_array_equal(grey(content), 255 - scaled(values, 0, 65535))


def test_8_bits_and_colours_are_not_touched_nor_texts_in_a_file_believed() -> None:
    from PIL.PngImagePlugin import PngInfo

    for shape in ((5, 5), (5, 5, 3)):
        image = decode_image(saved(Image.fromarray(RNG.integers(0, 256, shape).astype(np.uint8)), "PNG"))
        np.testing.assert_array_equal(to_rgb(image, "100..110"), to_rgb(image))
    texts = PngInfo()
    texts.add_text("greys", "evil")
    values = np.array([[0, 65535]], np.uint16)
    assert grey(saved(Image.fromarray(values), "PNG", pnginfo=texts)).tolist() == [[0, 255]]


@pytest.mark.parametrize(
    "window", ["", "files", "40", "40/0", "40/0.5", "5..5", "9..1", "40/400/2", "1e3..2e3", "nan..5", "0..inf"]
)
def test_windows_that_cannot_be(window: str) -> None:
    with pytest.raises(FedotpError, match=r'^data\.window = .*: must be "file", "full", "data", centre/width such as'):
        Config.from_dict({"data": {"dataset": "x", "window": window}})
    with pytest.raises(FedotpError, match=r"^window = .*: must be"):
        to_rgb(Image.new("I;16", (2, 2)), window)


def test_tokens_of_another_window_are_others(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(5):
            values = RNG.integers(0, 4096, (40, 40)).astype(np.uint16)
            Image.fromarray(values).save(tmp_path / "images" / name / f"{i}.png")
    dataset, clip = read_folder(tmp_path / "images"), tiny_clip()
    made = {w: encode(dataset, clip, root=tmp_path / "s", window=w) for w in ("file", "full", "0..4095", "0..1000")}
    assert [each.n_encoded for each in made.values()] == [10, 10, 10, 10]
    rows = np.arange(len(dataset.train))
    tokens = {window: each.train.read(rows).tokens for window, each in made.items()}
    assert (tokens["file"] == tokens["full"]).all()
    assert (tokens["full"] != tokens["0..4095"]).any()
    assert (tokens["0..1000"] != tokens["0..4095"]).any()
    assert encode(dataset, clip, root=tmp_path / "s", window="0..4095").n_encoded == 0
    for kind in (EvalTransform, TrainTransform):
        assert len({kind(greys=window).spec for window in made}) == len(made)


def test_the_check_counts_pictures_that_are_all_but_black(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(4):
            values = RNG.integers(0, 4096 if i < 2 else 65536, (16, 16)).astype(np.uint16)
            Image.fromarray(values).save(tmp_path / name / f"{i}.png")
    dataset = read_folder(tmp_path)
    dark = {dataset.where(ref) for ref in check_dataset(dataset).dark}
    assert dark == {str(tmp_path / name / f"{i}.png") for name in "ab" for i in range(2)}


def test_the_check_counts_pictures_of_which_a_window_hides_nearly_all(tmp_path: Path) -> None:
    """A CT slice in the window of a question is not one, though most of it is air."""
    air, body = np.full((64, 64), -1000), np.full((64, 64), 40)
    slice_ = np.where(np.add.outer((np.arange(64) - 32) ** 2, (np.arange(64) - 32) ** 2) < 300, body, air)
    slice_ = (slice_ + RNG.normal(0, 8, slice_.shape)).astype(np.int16)
    phantom = np.where(slice_ > -500, RNG.integers(20_000, 60_000, slice_.shape), 0).astype(np.uint16)
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(2):
            (tmp_path / name / f"ct{i}.dcm").write_bytes(
                dicom(slice_, RescaleIntercept=0, RescaleSlope=1, PatientID=name)
            )
            Image.fromarray(phantom + i).save(tmp_path / name / f"{i}.png")
    dataset = read_folder(tmp_path)
    hidden = check_dataset(dataset, window="40/400")
    assert {Path(dataset.where(ref)).name for ref in hidden.clipped} == {"0.png", "1.png"}
    assert (hidden.dark, len(hidden.clipped)) == ((), 4)
    for window in ("file", "full", "data", "-1100..65535"):
        assert check_dataset(dataset, window=window).clipped == ()
    assert clipped_note(dataset, "full") == ""
    assert clipped_note(dataset, "-5000..-4000").startswith("the window -5000..-4000 makes nearly all pixels of most")


def test_photos_of_phones_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smooth = np.add.outer(np.arange(48), np.arange(64)).astype(np.uint8)
    photo = Image.fromarray(np.stack([smooth, 255 - smooth, smooth], -1))
    from pillow_heif import from_pillow

    content = io.BytesIO()
    from_pillow(photo).save(content, quality=95)
    contents = {"a/1.heic": content.getvalue()}
    if features.check("avif"):
        contents["b/1.avif"] = saved(photo, "AVIF", quality=95)
    for name, each in contents.items():
        apart = np.asarray(to_rgb(decode_image(each)), int) - np.asarray(photo, int)
        assert np.abs(apart).mean() < 4
        for i in range(2):
            path = (tmp_path / name).with_stem(str(i))
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(each)
        with pytest.raises(FedotpError):
            decode_image(each[: len(each) // 2])
        with monkeypatch.context() as patch:  # it is refused before it is unfolded
            patch.setattr(_decode, "MAX_PIXELS", 48 * 64 - 1)
            with pytest.raises(FedotpError, match="million pixels: must be at most"):
                decode_image(each)
    assert check_dataset(read_folder(tmp_path)).broken == ()


def test_without_pillow_heif_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    with pytest.raises(FedotpError, match=r"HEIC images need pillow-heif: pip install 'fedotp\[heif\]'"):
        decode_image(b"\0\0\0\x18ftypheic" + bytes(99))
