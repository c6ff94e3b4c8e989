"""What users of fedotp in Python meet: images of every kind."""

from pathlib import Path

import numpy as np
import pytest
import torch
from classifier_made import Made
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from fedotp.classifier import Classifier
from fedotp.clip import EvalTransform, preprocess
from fedotp.errors import FedotpError
from fedotp.images import open_image
from fedotp.images._decode import picture_of


@pytest.fixture(scope="module")
def picture(made: Made) -> Image.Image:
    return made.test_images(np.array([0]))[0].convert("RGB")


def test_every_kind_of_image_gives_the_same_prediction(
    classifier: Classifier, picture: Image.Image, tmp_path: Path
) -> None:
    pixels = np.asarray(picture)  # (H, W, 3)
    picture.save(tmp_path / "picture.png")
    expected = classifier.predict(picture).probabilities
    alike = {
        "path": tmp_path / "picture.png",
        "text": str(tmp_path / "picture.png"),
        "array": pixels,
        "shares of white": pixels / 255,
        "single precision": (pixels / 255).astype(np.float32),
        "array with opacity": np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)]),
        "tensor": torch.from_numpy(pixels.copy()).permute(2, 0, 1),
        "tensor of shares": torch.from_numpy(pixels / 255).permute(2, 0, 1),
        "array of images": pixels[None],
        "tensor of images": torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None],
        "list": [pixels],
    }
    for name, given_ in alike.items():
        np.testing.assert_array_equal(classifier.predict(given_).probabilities, expected, err_msg=name)


def test_preprocess_is_public_and_the_tower_takes_what_it_gives(classifier: Classifier, picture: Image.Image) -> None:
    size = classifier.tower.config.image_size
    pixels = preprocess(np.asarray(picture), size)
    assert pixels.shape == (3, size, size)
    assert torch.equal(pixels, EvalTransform(size)(picture))
    assert torch.equal(pixels, classifier.tower.preprocess(picture))
    assert preprocess(picture).shape == (3, 224, 224)
    expected = classifier.predict(picture).probabilities
    np.testing.assert_array_equal(classifier.predict(classifier.encode_pixels(pixels[None])).probabilities, expected)


@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 8), st.integers(1, 8), st.sampled_from([3, 4]))))
def test_pixels_of_eight_bits_come_back_as_they_were(pixels: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(picture_of(pixels)), pixels)
    np.testing.assert_array_equal(np.asarray(picture_of(pixels / 255)), pixels)
    np.testing.assert_array_equal(np.asarray(picture_of(torch.from_numpy(pixels).permute(2, 0, 1))), pixels)


def test_greys_and_masks() -> None:
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert open_image(grey).mode == "L"
    assert open_image(grey[..., None]).size == (4, 3)
    assert open_image(torch.from_numpy(grey)[None]).size == (4, 3)
    assert open_image(grey.astype(np.uint16) * 4000).mode.startswith("I;16")
    assert set(np.asarray(open_image(grey > 3)).ravel().tolist()) == {0, 255}


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        (np.zeros((3, 8, 8), np.uint8), r"shape \(3, 8, 8\) is not an image: must be a NumPy array \(height, width\)"),
        (torch.zeros(8, 8, 3, dtype=torch.uint8), r"shape \(8, 8, 3\) is not an image"),
        (np.zeros((0, 8, 3), np.uint8), "not an image"),
        (np.zeros(8, np.uint8), "not an image"),
        (np.zeros((8, 8, 3), np.int64), "an array of int64 is not an image"),
        (np.full((8, 8, 3), 200.0), "must be from 0 to 1, got 200 to 200; divide by 255"),
        (np.full((8, 8, 3), -0.5, np.float32), "pass the output of `preprocess` to `encode_pixels`"),
        (np.full((8, 8, 3), np.nan), "from 0 to 1"),
        (np.array([["a"]]), "an array of <U1 is not an image"),
    ],
)
def test_numbers_that_are_no_picture_are_refused(classifier: Classifier, given_: object, why: str) -> None:
    with pytest.raises(FedotpError, match=why):
        classifier.predict(given_)
