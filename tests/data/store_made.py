"""Small data sets, a tower that counts, and the comparison of encoded data sets."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fedotp.clip import CLIP, TINY, ImageFeatures
from fedotp.data import Dataset, Split
from fedotp.data._dataset import ImageArray, ImageFiles
from fedotp.data.store._tokens import EncodedDataset


class CountingClip(CLIP):
    """Remembers how many images went through the tower."""

    n_images = 0

    def encode_image(self, pixels: torch.Tensor) -> ImageFeatures:
        self.n_images += len(pixels)
        return super().encode_image(pixels)


def tiny_clip(seed: int = 0) -> CountingClip:
    clip = CountingClip.random(TINY, seed=seed)
    assert isinstance(clip, CountingClip)
    return clip


def saved(image: Image.Image, form: str, **facts: object) -> bytes:
    """A picture as the content of a file."""
    content = io.BytesIO()
    image.save(content, form, **facts)
    return content.getvalue()


def noise(n: int, seed: int = 0) -> np.ndarray:
    """n different pictures (n, 20, 24, 3)."""
    return np.random.default_rng(seed).integers(0, 256, (n, 20, 24, 3), np.uint8)


def _labelled(source: ImageArray | ImageFiles, n: int) -> Split:
    return Split(source, np.arange(n), np.arange(n) % 2, np.zeros(n, np.int64))


def _dataset(train: Split, test: Split) -> Dataset:
    return Dataset("made", ("cat", "dog"), ("all",), train, test, "made by a test")


def array_dataset(n_train: int = 30, n_test: int = 10, seed: int = 0) -> Dataset:
    pixels = noise(n_train + n_test, seed)
    train, test = (ImageArray(Path("made"), part) for part in (pixels[:n_train], pixels[n_train:]))
    return _dataset(_labelled(train, n_train), _labelled(test, n_test))


def file_dataset(root: Path, n_train: int = 6, n_test: int = 2, *, prefix: str = "") -> Dataset:
    """The pictures of `array_dataset(n_train, n_test)` as PNG files."""
    root.mkdir(parents=True)
    names = tuple(f"{prefix}{i}.png" for i in range(n_train + n_test))
    for name, pixels in zip(names, noise(len(names)), strict=True):
        Image.fromarray(pixels).save(root / name)
    return _dataset(
        _labelled(ImageFiles(root, names[:n_train]), n_train), _labelled(ImageFiles(root, names[n_train:]), n_test)
    )


def assert_same_tokens(one: EncodedDataset, other: EncodedDataset) -> None:
    """Equal features of all crops, up to the last bit of float16: the tower rounds by batch size."""
    for name in ("train", "test"):
        a, b = one.split(name), other.split(name)
        assert a.records.shape == b.records.shape
        for crop in range(a.n_crops):
            first, second = (s.read(np.arange(len(s)), crop) for s in (a, b))
            torch.testing.assert_close(first.tokens, second.tokens, rtol=2**-10, atol=1e-5)
            torch.testing.assert_close(first.pooled, second.pooled, rtol=2**-10, atol=1e-5)
