"""Torchvision's geometry from worked-out numbers, Pillow's modes, and the law of random crops."""

import io
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedotp.clip import EvalTransform, Normalisation, TrainTransform, normalise, to_rgb
from fedotp.clip._preprocess import MEAN, STD
from fedotp.errors import FedotpError

BICUBIC = Image.Resampling.BICUBIC


def noise_image(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height))


def normalised(image: Image.Image) -> np.ndarray:
    """In double precision, (3, H, W)."""
    mean, std = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
    return ((np.asarray(image, dtype=np.float64) / 255 - mean) / std).transpose(2, 0, 1)


def assert_pixels(ours: torch.Tensor, image: Image.Image) -> None:
    assert ours.dtype == torch.float32
    assert ours.is_contiguous()
    np.testing.assert_allclose(ours.numpy(), normalised(image), atol=1e-6)


@pytest.mark.parametrize(
    ("original", "resized", "corner"),
    [  # what torchvision's Resize(224) and CenterCrop(224) do: the long side is cut off, halves go to even
        ((500, 375), (298, 224), (37, 0)),
        ((640, 427), (335, 224), (56, 0)),
        ((224, 227), (224, 227), (0, 2)),
        ((229, 224), (229, 224), (2, 0)),
        ((50, 30), (373, 224), (74, 0)),
    ],
)
def test_evaluation_geometry(original: tuple[int, int], resized: tuple[int, int], corner: tuple[int, int]) -> None:
    image = noise_image(*original)
    left, top = corner
    expected = image.resize(resized, BICUBIC).crop((left, top, left + 224, top + 224))
    assert_pixels(EvalTransform()(image), expected)


@pytest.mark.parametrize("original", [(500, 400), (82, 64), (64, 64), (300, 900), (90, 41)])
def test_evaluation_equals_transformers(original: tuple[int, int]) -> None:
    """Where the excess is even; elsewhere transformers' centre lies up to a pixel beside torchvision's."""
    from transformers import CLIPImageProcessorPil

    size = 64
    width, height = original
    excess = int(size * max(original) / min(original)) - size
    assert excess % 2 == 0
    image = noise_image(width, height)
    oracle = CLIPImageProcessorPil(size={"shortest_edge": size}, crop_size={"height": size, "width": size})
    expected = np.asarray(oracle(image)["pixel_values"][0])
    np.testing.assert_allclose(EvalTransform(size)(image).numpy(), expected, atol=1e-5)


def test_training_view_is_the_crop_it_sampled() -> None:
    image, transform = noise_image(90, 70), TrainTransform(32)
    for seed in range(8):
        crop = transform(image, random.Random(seed))
        left, top, width, height = transform.sample_box(90, 70, rng := random.Random(seed))
        expected = image.crop((left, top, left + width, top + height)).resize((32, 32), BICUBIC)
        if rng.random() < 0.5:
            expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        assert_pixels(crop, expected)
    # Golden values: a stored crop must mean the same picture tomorrow and elsewhere.
    boxes = [TrainTransform().sample_box(500, 375, random.Random(seed)) for seed in range(4)]
    assert boxes == [(17, 1, 432, 372), (72, 151, 216, 177), (1, 0, 482, 373), (157, 52, 240, 234)]


def test_flip_probability() -> None:
    image = noise_image(40, 40)
    plain, mirrored = (TrainTransform(16, flip=p)(image, random.Random(3)) for p in (0.0, 1.0))
    assert torch.equal(plain, mirrored.flip(2))
    transform = TrainTransform(16)
    crops = (transform(image, random.Random(seed)) for seed in range(400))
    unflipped = (replace(transform, flip=0.0)(image, random.Random(seed)) for seed in range(400))
    n_flipped = sum(not torch.equal(a, b) for a, b in zip(crops, unflipped, strict=True))
    assert 160 <= n_flipped <= 240


def test_law_of_the_random_crop() -> None:
    """In a square every draw fits if at most half the area is asked for: nothing distorts the law."""
    from scipy import stats

    side, rng = 4000, random.Random(0)
    transform = TrainTransform(scale=(0.1, 0.5), ratio=(0.5, 2.0))
    left, top, width, height = np.array([transform.sample_box(side, side, rng) for _ in range(3000)]).T
    uniforms = {
        "area": (width * height / side**2 - 0.1) / 0.4,
        "ratio": (np.log(width / height) / np.log(2) + 1) / 2,
        "left": (left + 0.5) / (side - width + 1),
        "top": (top + 0.5) / (side - height + 1),
    }
    for name, values in uniforms.items():
        assert stats.kstest(values, "uniform").pvalue > 0.01, name
    correlations = np.corrcoef(list(uniforms.values())) - np.eye(4)
    assert np.abs(correlations).max() < 0.06


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 10**6))
def test_crops_lie_inside(width: int, height: int, seed: int) -> None:
    left, top, w, h = TrainTransform().sample_box(width, height, random.Random(seed))
    assert w > 0
    assert h > 0
    assert 0 <= left <= width - w
    assert 0 <= top <= height - h


@pytest.mark.parametrize(
    ("size", "scale", "box"),
    [  # no draw fits a strip, so its middle is taken with the nearest allowed ratio
        ((10, 1000), (0.9, 1.0), (0, 493, 10, 13)),
        ((1000, 10), (0.9, 1.0), (493, 0, 13, 10)),
        ((1, 999), (0.9, 1.0), (0, 499, 1, 1)),
    ],
)
def test_strips_fall_back_to_the_centre(
    size: tuple[int, int], scale: tuple[float, float], box: tuple[int, int, int, int]
) -> None:
    assert TrainTransform(scale=scale).sample_box(*size, random.Random(0)) == box


@pytest.mark.parametrize(
    ("mode", "stored", "expected"),
    [
        ("RGB", (10, 20, 30), (10, 20, 30)),
        ("RGBA", (10, 20, 30, 0), (10, 20, 30)),  # alpha is dropped, the colour under it stays
        ("L", 77, (77, 77, 77)),
        ("LA", (77, 0), (77, 77, 77)),
        ("1", 1, (255, 255, 255)),
        ("CMYK", (0, 255, 255, 0), (255, 0, 0)),
        ("F", 77.0, (77, 77, 77)),
        ("I", 65535, (255, 255, 255)),
        ("I", 257 * 100, (100, 100, 100)),
        ("I;16", 257 * 100 + 128, (100, 100, 100)),
        ("I;16", 257 * 100 + 129, (101, 101, 101)),
    ],
)
def test_every_mode_becomes_rgb(mode: str, stored: object, expected: tuple[int, int, int]) -> None:
    upright = to_rgb(Image.new(mode, (3, 2), stored))
    assert (upright.mode, upright.getpixel((0, 0))) == ("RGB", expected)


def test_palettes_and_what_cannot_be_rgb() -> None:
    image = Image.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, 200, 100, 50])
    assert to_rgb(image).getpixel((0, 0)) == (200, 100, 50)
    image.info["transparency"] = b"\x00\x00"  # Pillow warns when this goes straight to RGB
    assert to_rgb(image).getpixel((0, 0)) == (200, 100, 50)
    with pytest.raises(FedotpError, match="cannot convert an image of mode La to RGB"):
        to_rgb(Image.new("La", (2, 2)))


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "TIFF"])
def test_orientation_is_applied(file_format: str) -> None:
    """Orientation 6: the camera was turned, the top left of the scene is stored at the bottom left."""
    stored = Image.new("RGB", (40, 20), "black")
    stored.paste("white", (0, 10, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    stored.save(buffer, file_format, exif=exif)
    upright = to_rgb(Image.open(buffer))
    assert upright.size == (20, 40)
    corners = [np.mean(upright.getpixel(at)) > 128 for at in ((3, 3), (16, 3), (3, 36), (16, 36))]
    assert corners == [True, False, False, False]


def test_sixteen_bits_are_scaled_a_few_rows_at_a_time_to_the_same_greys(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = np.random.default_rng(0).integers(0, 65536, (11, 7), dtype=np.uint16)
    whole = np.asarray(to_rgb(Image.fromarray(stored)))
    monkeypatch.setattr("fedotp.images._greys._AT_A_TIME", 20)
    np.testing.assert_array_equal(np.asarray(to_rgb(Image.fromarray(stored))), whole)


def test_a_picture_as_thin_as_a_thread_is_not_scaled_in_all_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaled as a whole, 20,000 pixels in a row would become a billion."""
    sizes: list[tuple[int, int]] = []
    resize = Image.Image.resize

    def resize_noted(self: Image.Image, size: tuple[int, int], *rest: object) -> Image.Image:
        sizes.append(size)
        return resize(self, (8, 8), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Image.Image, "resize", resize_noted)
    for shape in ((1, 20_000), (20_000, 1)):
        EvalTransform(224)(Image.new("RGB", shape))
    assert sizes == [(224, 16 * 224), (16 * 224, 224)]


def test_the_middle_of_a_long_picture_is_what_it_always_was() -> None:
    waves = (128 + 100 * np.sin(np.arange(1001) / 20)).astype(np.uint8)[:, None, None].repeat(30, 1).repeat(3, 2)
    for image in (Image.fromarray(waves), Image.fromarray(waves.swapaxes(0, 1))):
        width, height = (int(64 * side / 30) for side in image.size)
        left, top = round((width - 64) / 2), round((height - 64) / 2)
        middle = image.resize((width, height), BICUBIC).crop((left, top, left + 64, top + 64))
        apart = np.abs(np.asarray(EvalTransform(64).crop(image), int) - np.asarray(middle, int))
        assert apart.max() <= 5  # half a pixel aside at most


def test_specs_are_stable_and_differ_between_transforms() -> None:
    numbers = "mean (0.48145466, 0.4578275, 0.40821073) std (0.26862954, 0.26130258, 0.27577711)"
    assert EvalTransform(64).spec == f"rgb-upright, short side 64 bicubic, centre crop 64, {numbers}"
    assert TrainTransform(64).spec == (
        "rgb-upright, random resized crop 64 bicubic scale (0.08, 1.0) ratio (0.75, 1.3333333333333333), "
        f"flip 0.5, {numbers}"
    )
    train = TrainTransform()
    variants = [train, replace(train, scale=(0.5, 1.0)), replace(train, flip=0.0), EvalTransform(), EvalTransform(225)]
    assert len({transform.spec for transform in variants}) == len(variants)


def every_value() -> torch.Tensor:
    """RGB pixels (16, 16, 3), each channel with every value of a byte."""
    return torch.arange(256, dtype=torch.uint8).reshape(16, 16, 1).expand(-1, -1, 3)


def test_a_batch_is_normalised_to_the_bits_of_its_images() -> None:
    images = [noise_image(40, 30, seed) for seed in range(3)]
    crops = torch.from_numpy(np.stack([np.asarray(EvalTransform(16).crop(image)) for image in images]))
    assert torch.equal(normalise(crops), torch.stack([EvalTransform(16)(image) for image in images]))
    in_turn = every_value().permute(2, 0, 1).float()
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    assert torch.equal(normalise(every_value()), in_turn.div(255).sub(mean).div(std))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_normalises_to_the_same_bits() -> None:
    assert torch.equal(normalise(every_value().cuda()).cpu(), normalise(every_value()))


@pytest.mark.parametrize(
    ("look", "mean", "std"),
    [
        ("cifar10", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        ("cifar100", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ],
)
def test_the_looks_of_cifar_are_bilinear_with_the_authors_numbers(
    look: Normalisation, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    image = noise_image(32, 32)
    resized = np.asarray(image.resize((64, 64), Image.Resampling.BILINEAR), np.float64) / 255
    expected = (resized - mean) / std
    transform = EvalTransform(64, look)
    np.testing.assert_allclose(transform(image).numpy(), expected.transpose(2, 0, 1), atol=1e-6)
    pixels = torch.from_numpy(np.array(transform.crop(image)))
    assert torch.equal(normalise(pixels, look), transform(image))
    assert transform.spec != EvalTransform(64).spec  # tokens of the two are stored apart
