"""Encoding once: what is found again, what is not, and what the tokens are."""

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from store_made import array_dataset, assert_same_tokens, file_dataset, noise, tiny_clip

from fedotp.clip import CLIP, TINY, EvalTransform, TrainTransform
from fedotp.data import Dataset
from fedotp.data._dataset import ImageArray, ImageFiles
from fedotp.data.store import _encode as content
from fedotp.data.store._crops import crop_rng
from fedotp.data.store._encode import encode
from fedotp.data.store._tower import Tower
from fedotp.errors import FedotpError
from fedotp.ot import score


def test_tokens_are_the_towers(tmp_path: Path) -> None:
    dataset, clip = array_dataset(), tiny_clip()
    encoded = encode(dataset, clip, root=tmp_path, batch_size=7)
    pixels = torch.stack([EvalTransform(32)(dataset.train.image(i)) for i in range(30)])
    exact = clip.encode_image(pixels)
    stored = encoded.train.read(np.arange(30))
    assert (encoded.n_encoded, encoded.train.n_crops, len(encoded.test)) == (40, 1, 10)
    torch.testing.assert_close(stored.tokens, exact.tokens, rtol=2**-11, atol=1e-5)  # float16 rounds by 2^-11
    torch.testing.assert_close(stored.pooled, exact.pooled, rtol=2**-11, atol=1e-5)


def test_any_shape_of_indices_and_crops(tmp_path: Path) -> None:
    encoded = encode(array_dataset(), tiny_clip(), root=tmp_path, crops=3)
    batch = torch.tensor([[0, 5, 5, 29], [7, 1, 2, 3]])  # (C, B): clients and images
    features = encoded.train.read(batch, [[2], [0]], dtype=torch.float64)
    assert features.pooled.shape == (2, 4, 32)
    assert features.tokens.shape == (2, 4, 16, 32)
    assert features.tokens.dtype == torch.float64
    assert torch.equal(features.tokens[0, 1].float(), encoded.train.read(5, 2).tokens)
    assert torch.equal(features.tokens[1, 2].float(), encoded.train.read(2, 0).tokens)
    with pytest.raises(IndexError):
        encoded.train.read(0, 3)


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_pooled_features_can_be_read_alone(tmp_path: Path, storage: str) -> None:
    """Of records in two shards: the second call encodes what the first had not."""
    clip = tiny_clip()
    encode(array_dataset(10, 2), clip, root=tmp_path, storage=storage)
    encoded = encode(array_dataset(), clip, root=tmp_path, storage=storage)
    assert 0 < encoded.n_encoded < 40
    batch = np.array([[0, 5, 5, 29], [7, 1, 2, 3]])
    whole, pooled = (encoded.train.read(batch, dtype=torch.float64, tokens=tokens) for tokens in (True, False))
    assert torch.equal(whole.pooled, pooled.pooled)
    assert pooled.tokens.shape == (2, 4, 0, 32)
    assert pooled.tokens.dtype == torch.float64


def test_random_crops_are_the_crops_of_their_number(tmp_path: Path) -> None:
    dataset, clip = array_dataset(4, 2), tiny_clip()
    encoded = encode(dataset, clip, root=tmp_path, crops=3, seed=5)
    for i in range(4):
        digest = hashlib.sha256(dataset.train.read(i)).digest()
        for crop in range(3):
            rng = crop_rng(digest, seed=5, crop=crop)
            pixels = TrainTransform(32)(dataset.train.image(i), rng)
            exact = clip.encode_image(pixels[None]).tokens[0]
            torch.testing.assert_close(encoded.train.read(i, crop).tokens, exact, rtol=2**-10, atol=1e-5)


def test_crops_are_the_same_on_every_platform() -> None:
    boxes = [
        (*TrainTransform(224).sample_box(300, 200, rng), rng.random() < 0.5)
        for seed in range(3)
        for crop in range(50)
        for rng in [crop_rng(bytes(range(32)), seed=seed, crop=crop)]
    ]
    assert len(set(boxes)) == 150
    assert boxes[0] == (83, 75, 98, 102, True)
    assert (
        hashlib.sha256(repr(boxes).encode()).hexdigest()
        == "f8017b40a4aa301c7e8d89564b24df4329d976daa52977ced91029bfffac564d"
    )


def test_nothing_is_encoded_twice(tmp_path: Path) -> None:
    clip, store = tiny_clip(), tmp_path / "store"
    here = file_dataset(tmp_path / "here")
    first = encode(here, clip, root=store)
    assert clip.n_images == 8
    shutil.move(tmp_path / "here", tmp_path / "there")
    moved = replace(
        here,
        train=replace(here.train, source=ImageFiles(tmp_path / "there", here.train.source.paths)),
        test=replace(here.test, source=ImageFiles(tmp_path / "there", here.test.source.paths)),
    )
    renamed = file_dataset(tmp_path / "renamed", prefix="other ü ")
    for same in (here, moved, renamed)[1:]:
        again = encode(same, clip, root=store)
        assert again.n_encoded == 0
        assert_same_tokens(again, first)
    assert clip.n_images == 8


def test_equal_images_share_a_record(tmp_path: Path) -> None:
    dataset = array_dataset(3, 2)
    twins = replace(dataset, train=dataset.train.select(np.array([0, 1, 2, 0, 1, 2])))
    encoded = encode(twins, tiny_clip(), root=tmp_path)
    assert encoded.n_encoded == 5
    assert encoded.train.records.tolist() == [[*encoded.train.records[0, :3]] * 2]


def test_more_crops_encode_only_the_new_ones(tmp_path: Path) -> None:
    dataset, clip = array_dataset(5, 2), tiny_clip()
    two = encode(dataset, clip, root=tmp_path, crops=2)
    four = encode(dataset, clip, root=tmp_path, crops=4)
    assert (two.n_encoded, four.n_encoded) == (5 * 2 + 2, 5 * 2)
    assert torch.equal(two.train.read([0, 1], 1).tokens, four.train.read([0, 1], 1).tokens)


def test_everything_that_changes_the_tokens_is_encoded_anew(tmp_path: Path) -> None:
    def n_encoded(dataset: Dataset, clip: CLIP, **options: object) -> int:
        return encode(dataset, clip, root=tmp_path, **options).n_encoded  # type: ignore[arg-type]

    dataset, clip = array_dataset(4, 2), tiny_clip()
    assert n_encoded(dataset, clip) == 6
    other_weights = tiny_clip()
    with torch.no_grad():
        other_weights.visual.proj[0, 0] += 1e-3
    assert n_encoded(dataset, other_weights) == 6
    other_activation = CLIP.random(replace(TINY, activation="gelu"))
    assert other_activation.digest == clip.digest
    assert n_encoded(dataset, other_activation) == 6
    assert n_encoded(dataset, clip, crops=1) == 4
    assert n_encoded(dataset, clip, crops=1, seed=1) == 4
    assert n_encoded(dataset, clip, storage="int8") == 6
    assert n_encoded(dataset, clip, precision=torch.bfloat16) == 6
    assert n_encoded(array_dataset(4, 2, seed=1), clip) == 6
    assert n_encoded(dataset, clip) == 0
    upright = ImageArray(Path("made"), dataset.train.source.pixels.reshape(4, 24, 20, 3))
    assert n_encoded(replace(dataset, train=replace(dataset.train, source=upright)), clip) == 4


def test_files_are_hashed_again_only_when_they_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_UNSETTLED_NS", -1)  # the files of a test are brand-new
    reads: list[int] = []
    dataset, clip, store = file_dataset(tmp_path / "here"), tiny_clip(), tmp_path / "store"

    def read(self: ImageFiles, row: int) -> bytes:
        reads.append(row)
        return (self.root / self.paths[row]).read_bytes()

    encode(dataset, clip, root=store)
    monkeypatch.setattr(ImageFiles, "read", read)
    encode(dataset, clip, root=store)
    assert reads == []

    path = tmp_path / "here" / "3.png"
    before, changed = path.stat(), noise(1, seed=9)[0]
    while True:  # other content, but of the same size and with the same time of change
        Image.fromarray(changed).save(path)
        if path.stat().st_size == before.st_size:
            break
        changed = changed // 2
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert encode(dataset, clip, root=store).n_encoded == 1
    assert reads == [3, 3]  # once to hash, once to decode


@pytest.mark.parametrize(
    "damage", [b"", b"\x93NUMPY\x01\x00 rubbish", b"\x93NUMPY\x01\x00\x10\x00{'descr': ((((\n ", b"PK\x03\x04"]
)
def test_damaged_memory_of_hashes_is_ignored(damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, clip, store = file_dataset(tmp_path / "here"), tiny_clip(), tmp_path / "store"
    encode(dataset, clip, root=store)
    (memo,) = (store / "hashes").iterdir()
    assert len(np.load(memo)) == 0  # new files are not trusted to stay
    monkeypatch.setattr(content, "_UNSETTLED_NS", -1)
    memo.write_bytes(damage)
    assert encode(dataset, clip, root=store).n_encoded == 0
    assert len(np.load(memo)) == 8


def test_an_image_that_changes_meanwhile_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = file_dataset(tmp_path / "here")
    reads: list[int] = []

    def read(self: ImageFiles, row: int) -> bytes:
        reads.append(row)
        found = (self.root / self.paths[row]).read_bytes()
        return found + b"!" if row == 4 and reads.count(4) == 2 else found

    monkeypatch.setattr(ImageFiles, "read", read)
    with pytest.raises(FedotpError, match=r"4\.png.*changed during"):
        encode(dataset, tiny_clip(), root=tmp_path / "store")


def test_broken_images_are_named_or_skipped(tmp_path: Path) -> None:
    dataset, clip, store = file_dataset(tmp_path / "here"), tiny_clip(), tmp_path / "store"
    whole = (tmp_path / "here" / "2.png").read_bytes()
    for name in ("2.png", "3.png", "7.png"):
        (tmp_path / "here" / name).write_bytes(whole[:200])
    (tmp_path / "here" / "0.png").unlink()
    broken_at: list[str] = []
    with pytest.raises(FedotpError, match=r"made: 4 broken images, first .*0\.png \(No such file") as raised:
        encode(dataset, clip, root=store, on_broken=lambda broken: broken_at.append(broken.where))
    assert "\n" not in str(raised.value)
    assert broken_at[0].endswith("0.png")
    assert clip.n_images == 4
    encoded = encode(dataset, clip, root=store, skip_broken=True)
    assert clip.n_images == 4
    assert tuple(sorted(encoded.dataset.skipped)) == ("0.png", "2.png", "3.png", "7.png")
    assert (len(encoded.train), len(encoded.test)) == (len(encoded.dataset.train), len(encoded.dataset.test))
    assert (len(encoded.train), len(encoded.test)) == (3, 1)
    alone = encode(encoded.dataset, clip, root=store)
    assert_same_tokens(alone, encoded)


def test_numbers_that_are_not_finite_are_never_stored(tmp_path: Path) -> None:
    dataset, clip = array_dataset(4, 2), tiny_clip()
    with torch.no_grad():
        clip.visual.proj *= 1e6
    with pytest.raises(FedotpError, match="exceeds float16"):
        encode(dataset, clip, root=tmp_path)


def test_int8_halves_the_space_and_keeps_the_scores(tmp_path: Path) -> None:
    dataset, clip = array_dataset(), tiny_clip()
    half = encode(dataset, clip, root=tmp_path)
    byte = encode(dataset, clip, root=tmp_path, storage="int8")
    sizes = [replace(e.train.store.encoding, n_patches=196, width=512).record.itemsize for e in (half, byte)]
    assert sizes[1] / sizes[0] < 0.51
    exact = clip.encode_image(torch.stack([EvalTransform(32)(dataset.train.image(i)) for i in range(30)])).tokens
    largest = exact.abs().amax(-1, keepdim=True)
    stored = byte.train.read(np.arange(30)).tokens
    assert ((stored - exact).abs() <= largest / 254 * 1.001).all()

    classes = torch.nn.functional.normalize(torch.randn(5, 2, 32), dim=-1)  # (K, N, e)

    def scores(tokens: torch.Tensor) -> torch.Tensor:
        tokens = torch.nn.functional.normalize(tokens, dim=-1)
        return score(torch.einsum("bve,kne->bkvn", tokens, classes), mass=0.8)  # (B, K)

    errors = [(scores(e.train.read(np.arange(30)).tokens) - scores(exact)).abs().max().item() for e in (half, byte)]
    assert errors[0] < 1e-4
    assert 1e-5 < errors[1] < 2e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_a_recorded_tower_says_the_same(
    precision: torch.dtype | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[object] = []
    record = Tower._record

    def noted(self: Tower, pixels: torch.Tensor) -> object:
        recorded.append(record(self, pixels))
        return recorded[-1]

    monkeypatch.setattr(Tower, "_record", noted)
    dataset, clip = array_dataset(30, 10), tiny_clip().cuda()
    one = encode(dataset, clip, root=tmp_path / "recorded", precision=precision, batch_size=4)
    assert len(recorded) == 1
    assert recorded[0] is not None
    monkeypatch.setattr(Tower, "get_ready", lambda *_: None)
    other = encode(dataset, clip, root=tmp_path / "plain", precision=precision, batch_size=4)
    assert one.n_encoded == other.n_encoded == 40
    assert_same_tokens(one, other)
