"""Windows of pictures resized by our kernels, on CUDA or interpreted, against Pillow: the same bits."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedotp.clip import EvalTransform, TrainTransform
from resized import restated

CUDA = torch.cuda.is_available()
SIDES = st.integers(1, 120)


def picture(width: int, height: int, seed: int) -> Image.Image:
    """Black and white dots: whatever is rounded is rounded here."""
    dots = np.random.default_rng(seed).integers(0, 2, (height, width, 3), np.uint8) * 255
    return Image.fromarray(dots)


@given(SIDES, SIDES, st.integers(1, 40), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_the_weights_are_pillows(width: int, height: int, size: int, seed: int) -> None:
    image = picture(width, height, seed)
    for transform in (EvalTransform(size), TrainTransform(size)):
        window = transform.window(width, height, random.Random(seed))
        expected = np.asarray(transform.crop(image, random.Random(seed)))
        np.testing.assert_array_equal(restated(image, window, size), expected)


@pytest.mark.parametrize("transform", [EvalTransform(8), TrainTransform(8)])
def test_pictures_of_many_shapes_at_once(transform: EvalTransform | TrainTransform) -> None:
    pytest.importorskip("triton")
    from fedotp.clip import Shown, resize

    shapes = [(13, 17), (8, 8), (20, 9), (3, 30)]  # the fourth may begin with its columns
    images = [picture(*shape, seed) for seed, shape in enumerate(shapes)]
    windows = [transform.window(*image.size, random.Random(i)) for i, image in enumerate(images)]
    rows = torch.full((len(images), 20 * 20 * 3), 77, dtype=torch.uint8)
    for row, image in zip(rows, images, strict=True):
        content = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        row[: len(content)] = content
    shown = [Shown(*image.size, window) for image, window in zip(images, windows, strict=True)]
    found = resize(rows.to("cuda" if CUDA else "cpu"), shown, 8).cpu().numpy()
    for i, image in enumerate(images):
        np.testing.assert_array_equal(found[i], np.asarray(transform.crop(image, random.Random(i))), str(shapes[i]))
