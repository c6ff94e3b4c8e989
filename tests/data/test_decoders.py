"""Decoding processes: the same tokens as threads make, whatever happens to them."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from deadly import Deadly
from PIL import Image
from store_made import array_dataset, file_dataset, noise, tiny_clip

from fedotp.clip import EvalTransform
from fedotp.data import Dataset, Split, load_dataset
from fedotp.data.store import _pool
from fedotp.data.store._crops import Request
from fedotp.data.store._encode import encode
from fedotp.data.store._pool import DecoderPool, DecodingProcess, ProcessPool
from fedotp.data.store._tokens import EncodedDataset
from fedotp.data.store._tower import SplitImage
from fedotp.errors import FedotpError
from fedotp.images import _decode
from own_process import python


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[ProcessPool]:
    """Every image is looked at in one of two processes; the pools that were started for it."""
    monkeypatch.setattr(_pool, "n_cores", lambda: 2)
    monkeypatch.setattr(_pool, "_FEW_CORES", 2)
    monkeypatch.setattr(_pool, "_FEW_IMAGES", 1)
    started: list[ProcessPool] = []
    start = ProcessPool.__init__
    monkeypatch.setattr(ProcessPool, "__init__", lambda self, *facts: start(self, *facts) or started.append(self))
    return started


def decoding(pool: ProcessPool) -> list[int]:
    """The numbers of its processes that run."""
    return [process._process.pid for process in pool.processes if process._process is not None]


def odd_files(root: Path) -> Dataset:
    """Pictures of all kinds of modes: JPEG files, turned ones, palettes, 16 bits, one that is 300 times as long."""
    dataset = file_dataset(root, 6, 6)
    pixels = noise(12, seed=3)
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(pixels[0]).resize((90, 60)).save(root / "0.png", "JPEG", quality=90)
    Image.fromarray(pixels[1]).save(root / "1.png", "JPEG", exif=turned)
    Image.fromarray(pixels[2]).quantize(16).save(root / "2.png")
    Image.fromarray(pixels[3][..., 0].astype(np.uint16) * 257).save(root / "3.png")
    Image.fromarray(pixels[4]).resize((3000, 10)).save(root / "4.png", "WEBP")
    Image.fromarray(pixels[5]).convert("CMYK").save(root / "7.png", "TIFF")
    return dataset


def few_of_the_box(_: Path) -> Dataset:
    dataset = load_dataset("emoji")
    first = np.unique(dataset.train.labels, return_index=True)[1]
    return replace(dataset, train=dataset.train.select(first), test=dataset.test.select(np.arange(9)))


def assert_equal_tokens(one: EncodedDataset, other: EncodedDataset) -> None:
    for name in ("train", "test"):
        a, b = one.split(name), other.split(name)
        for crop in range(a.n_crops):
            first, second = (split.read(np.arange(len(split)), crop) for split in (a, b))
            assert torch.equal(first.tokens, second.tokens)
            assert torch.equal(first.pooled, second.pooled)


@pytest.mark.parametrize(
    ("make", "crops"), [(odd_files, 0), (odd_files, 3), (lambda _: array_dataset(), 3), (few_of_the_box, 3)]
)
def test_processes_make_the_tokens_that_threads_make(
    make: object, crops: int, tmp_path: Path, pools: list[ProcessPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = make(tmp_path / "images")  # type: ignore[operator]
    theirs = encode(dataset, tiny_clip(), root=tmp_path / "processes", crops=crops, batch_size=7)
    assert len(pools) == 1
    monkeypatch.setattr(_pool, "_FEW_IMAGES", 512)
    ours = encode(dataset, tiny_clip(), root=tmp_path / "threads", crops=crops, batch_size=7)
    assert len(pools) == 1
    assert theirs.n_encoded == ours.n_encoded == theirs.train.records.size + theirs.test.records.size
    assert_equal_tokens(theirs, ours)
    assert theirs.content == ours.content


@pytest.mark.parametrize(("cores", "images"), [(16, 300), (2, 601)])
def test_little_work_and_few_cores_start_no_process(
    cores: int, images: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pool, "n_cores", lambda: cores)
    monkeypatch.setattr(_pool, "ProcessPool", lambda *_: pytest.fail("a process was started"))
    assert encode(array_dataset(images - 1, 1), tiny_clip(), root=tmp_path).n_encoded == images


def test_the_process_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, fedotp.data.store._crops, fedotp.clip; "
        "fedotp.clip.EvalTransform; fedotp.clip.TrainTransform; "
        "print(sorted({'numpy', 'torch'} & sys.modules.keys()))"
    )
    assert python("-c", code).stdout == "[]\n"


@pytest.mark.usefixtures("pools")
def test_broken_images_are_reported_alike(tmp_path: Path) -> None:
    dataset = file_dataset(tmp_path / "here")
    whole = (tmp_path / "here" / "2.png").read_bytes()
    (tmp_path / "here" / "0.png").unlink()
    (tmp_path / "here" / "1.png").write_bytes(b"")
    (tmp_path / "here" / "2.png").write_bytes(whole[:200])
    (tmp_path / "here" / "3.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n")
    Image.new("1", (11_000, 11_000)).save(tmp_path / "here" / "7.png")
    found: list[tuple[str, str]] = []
    encoded = encode(
        dataset,
        tiny_clip(),
        root=tmp_path / "store",
        skip_broken=True,
        on_broken=lambda broken: found.append((Path(broken.where).name, broken.reason)),
    )
    reasons = dict(found)
    assert encoded.dataset.skipped == ("7.png", "0.png", "1.png", "2.png", "3.png")
    assert reasons["0.png"] == "No such file or directory"
    assert reasons["1.png"] == "zero bytes"
    assert "truncated" in reasons["2.png"]
    assert reasons["3.png"].startswith("not an image of a supported format")
    assert reasons["7.png"] == "121 million pixels: must be at most 120 million"
    with pytest.raises(FedotpError, match=r"made: 5 broken images, first .*0\.png \(No such file"):
        encode(dataset, tiny_clip(), root=tmp_path / "store")


def asked(split: Split, *, deadly: int = -1, portable: bool = False) -> list[Request]:
    """Requests for the first six images of a split; the transform of one may end the process."""
    images = [SplitImage(split, i) for i in range(6)]
    return [
        Request(
            image.portable() if portable else image,
            crops=((0, 0),),
            transform=Deadly() if i == deadly else EvalTransform(32),
            row=i,
        )
        for i, image in enumerate(images)
    ]


def assert_decoded(decoders: DecoderPool, split: Split, rows: Sequence[int] = range(6)) -> None:
    for i in rows:
        np.testing.assert_array_equal(decoders.pixels[i], np.asarray(EvalTransform(32).crop(split.image(i))))


def test_the_picture_that_ended_a_process_is_found_by_asking_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[DecodingProcess] = []
    start = DecodingProcess.__init__
    monkeypatch.setattr(DecodingProcess, "__init__", lambda self, *facts: start(self, *facts) or started.append(self))
    with DecoderPool(6, 32) as decoders:
        pool = ProcessPool(decoders._file, decoders._rows, 2)
        found = list(pool.submit(asked(file_dataset(tmp_path / "here").train, deadly=1, portable=True), 8))
        pool.close()
    assert [i for i in range(6) if found[i].broken] == [1]
    assert found[1].broken == "its decoding process ended (signal SIGKILL)"
    assert len(started) == 4  # two at first, one to see which picture it was, one in its place


def test_killed_processes_are_replaced(tmp_path: Path, pools: list[ProcessPool]) -> None:
    dataset = file_dataset(tmp_path / "here", 40, 2)
    killed: list[int] = []

    def kill(what: str, done: int, total: int) -> None:
        if what == "encoding train" and 4 <= done < 12:
            for pid in decoding(pools[0]):
                killed.append(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    encoded = encode(dataset, tiny_clip(), root=tmp_path / "store", batch_size=4, on_progress=kill)
    assert len(killed) >= 2
    assert encoded.n_encoded == 42
    assert_equal_tokens(encoded, encode(dataset, tiny_clip(), root=tmp_path / "again", batch_size=4))


@pytest.mark.usefixtures("pools")
def test_where_no_process_can_be_started_threads_do_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = file_dataset(tmp_path / "here", 9, 2)
    for n, program in enumerate(("/bin/false", "/nowhere/python")):
        monkeypatch.setattr(sys, "executable", program)
        assert encode(dataset, tiny_clip(), root=tmp_path / f"store {n}").n_encoded == 11


def test_interrupted_no_process_is_left(tmp_path: Path, pools: list[ProcessPool]) -> None:
    pids: list[int] = []

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "encoding train" and done >= 8:
            pids.extend(decoding(pools[0]))
            raise KeyboardInterrupt

    dataset = file_dataset(tmp_path / "here", 32, 2)
    with pytest.raises(KeyboardInterrupt):
        encode(dataset, tiny_clip(), root=tmp_path / "store", batch_size=4, on_progress=interrupt)
    assert len(pids) == 2
    assert not any(_is_alive(pid) for pid in pids)
    assert encode(dataset, tiny_clip(), root=tmp_path / "store").n_encoded == 34 - 8


KILLED = """
import os, signal, sys
from pathlib import Path
from store_made import file_dataset, tiny_clip
from fedotp.data.store import _pool
from fedotp.data.store._encode import encode
from test_decoders import decoding

_pool.n_cores, _pool._FEW_CORES, _pool._FEW_IMAGES = lambda: 2, 2, 1
def noted(*facts, start=_pool.ProcessPool):
    global pool
    pool = start(*facts)
    return pool
_pool.ProcessPool = noted
def die(what, done, total):
    if what == "encoding train" and done >= 8:
        print(*decoding(pool), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
dataset = file_dataset(Path(sys.argv[1]) / "here", 30, 2)
encode(dataset, tiny_clip(), root=Path(sys.argv[1]), batch_size=4, on_progress=die)
"""


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    done = python("-c", KILLED, tmp_path, status=-signal.SIGKILL)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    while any(_is_alive(pid) for pid in pids):
        time.sleep(0.01)


def test_large_pictures_are_decoded_in_turn_by_the_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = most = 0
    lock = threading.Lock()

    class Noting(_decode.Room):
        @contextmanager
        def taken(self, n: int) -> Iterator[None]:
            nonlocal inside, most
            with super().taken(n):
                with lock:
                    inside += n
                    most = max(most, inside)
                yield
                with lock:
                    inside -= n

    monkeypatch.setattr(_decode, "_ROOM", Noting(2000 * 1000))
    split = file_dataset(tmp_path / "here", 6, 2).train
    for i in range(4):
        Image.fromarray(noise(1, seed=i)[0]).resize((2000, 1000)).save(tmp_path / "here" / f"{i}.png")
    with DecoderPool(6, 32) as decoders:
        pool = ProcessPool(decoders._file, decoders._rows, 2)
        assert not any(looked.broken for looked in pool.submit(asked(split, portable=True), 1))
        pool.close()
        assert most == 2_000_000
        assert_decoded(decoders, split)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
