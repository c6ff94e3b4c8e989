"""One decoder for all pictures from outside: known formats, plain files, and a bound on what is unfolded at a time."""

import os
import struct
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from layouts import write_tree
from PIL import Image
from store_made import saved, tiny_clip

from fedotp.data import Split, check_dataset
from fedotp.data._folder import read_folder
from fedotp.data._tables import _Table
from fedotp.data.store import encode
from fedotp.errors import FedotpError
from fedotp.images import _decode, decode_image, decoded, open_image

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


def _png(mode: str, width: int, height: int) -> bytes:
    return saved(Image.new(mode, (width, height)), "PNG")


def _tiff_of_one_pixel_in_a_tile(side: int) -> bytes:
    """One pixel, stored in a tile of `side` x `side`."""
    packed = zlib.compress(bytes(16 * 16))
    tags = {256: 1, 257: 1, 258: 8, 259: 8, 262: 1, 277: 1, 322: side, 323: side, 324: 0, 325: len(packed)}
    tags[324] = 8 + 2 + 12 * len(tags) + 4
    fields = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + fields + bytes(4) + packed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tree(tmp_path, [f"{s}/{c}/{i}.png" for s in ("train", "test") for c in "ab" for i in range(2)])
    return tmp_path


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (POSTSCRIPT, "not an image of a supported format"),
        (_png("1", 11_000, 11_000), "too many pixels: must be at most 120 million"),
        (_png("1", 20_000, 20_000), "too many pixels: must be at most 120 million"),
        (_tiff_of_one_pixel_in_a_tile(30_000), "900 million pixels"),
    ],
    ids=["postscript", "bomb", "gigantic", "tile"],
)
def test_folder_check_hugging_face_and_predict_refuse_the_same_pictures(
    content: bytes, reason: str, folder: Path
) -> None:
    path = folder / "train" / "a" / "x.png"
    path.write_bytes(content)
    (broken,) = check_dataset(read_folder(folder)).broken
    assert reason in broken.reason

    with pytest.raises(FedotpError, match=reason):
        open_image(path)

    for cell in ({"bytes": content, "path": None}, {"bytes": None, "path": str(path)}):
        rows = Split(_Table([{"image": cell}], "image", "hub"), *[np.zeros(1, np.int64)] * 3)
        with pytest.raises(FedotpError, match=reason):
            rows.image(0)


@pytest.fixture
def odd_files(folder: Path) -> list[Path]:
    """A pipe, a link to a device that never ends, and a file of a terabyte, all called images."""
    paths = [folder / "train" / "a" / name for name in ("device.png", "holes.png", "pipe.png")]
    paths[0].symlink_to("/dev/zero")
    with open(paths[1], "wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(paths[2])
    return paths


def test_pipes_devices_and_endless_files_in_an_image_folder_are_broken_images(
    folder: Path, odd_files: list[Path], tmp_path: Path
) -> None:
    dataset = read_folder(folder)
    broken = check_dataset(dataset).broken
    assert [each.where for each in broken] == [str(path) for path in odd_files]
    for each, reason in zip(broken, ("not a regular file", "at most", "not a regular file"), strict=True):
        assert reason in each.reason
        with pytest.raises(FedotpError, match=f"cannot read image .*{reason}"):
            open_image(each.where)
        with pytest.raises(FedotpError, match=f"cannot read image .*{reason}"):
            dataset.train.image(each.ref.index)
    encoded = encode(dataset, tiny_clip(), root=tmp_path / "store", skip_broken=True)
    assert len(encoded.train) == len(dataset.train) - 3


def test_threads_together_decode_no_more_pixels_than_one_picture_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decode, "_ROOM", _decode.Room(100))
    content = _png("L", 8, 8)  # 64 of the 100
    counted = SimpleNamespace(inside=0, most=0)
    lock = threading.Lock()

    def decode_one(_: int) -> None:
        with decoded(content):
            with lock:
                counted.inside += 1
                counted.most = max(counted.most, counted.inside)
            time.sleep(0.002)  # for the others to come in, if they may
            with lock:
                counted.inside -= 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(decode_one, range(16)))
    assert counted.most == 1


def test_small_pictures_are_decoded_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decode, "_ROOM", _decode.Room(200))
    together = threading.Barrier(3, timeout=60)

    def decode_one(_: int) -> None:
        with decoded(_png("L", 8, 8)):
            together.wait()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(decode_one, range(3)))


def test_room_is_given_back_after_a_broken_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_decode, "_ROOM", _decode.Room(100))
    content = _png("RGB", 8, 8)
    for _ in range(3):
        with pytest.raises(FedotpError):
            decode_image(content[:-30])
    assert decode_image(content).size == (8, 8)
    assert decode_image(_tiff_of_one_pixel_in_a_tile(16)).size == (1, 1)  # a tile of decent size


def test_a_phone_photo_of_108_megapixels_passes_folder_check_predict_and_serve(folder: Path) -> None:
    content = _png("1", 12_000, 9_000)
    (folder / "train" / "a" / "phone.png").write_bytes(content)
    assert check_dataset(read_folder(folder)).broken == ()
    assert open_image(folder / "train" / "a" / "phone.png").size == (12_000, 9_000)


def test_nothing_else_opens_pictures() -> None:
    root = Path(_decode.__file__).parents[1]
    openers = [path.relative_to(root).as_posix() for path in root.rglob("*.py") if "Image.open(" in path.read_text()]
    assert openers == ["images/_decode.py"]
