"""Preprocessing of images for CLIP, resampled by Pillow as in OpenAI's code.

Images are first converted to upright RGB, then cropped and resized. OpenAI resizes before the conversion, which differs
for palette images (resized there without smoothing) and for transparent ones. torch and NumPy are imported on first
use, so that processes that only crop start faster.
"""

import math
import random
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from PIL import ExifTags, Image, ImageOps

from fedotp.errors import FedotpError
from fedotp.images import WINDOW, ImageLike, eight_bits, has_more_bits, open_image

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
Normalisation = Literal["clip", "cifar10", "cifar100"]
"""Preprocessing: CLIP's, or that of the authors' code for CIFAR."""
CHANNELS: dict[Normalisation, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "clip": (MEAN, STD),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
"""Mean and standard deviation of red, green and blue."""

_LONGEST = 16  # maximum aspect ratio that is resized; longer images are cropped first
_TURNS = {  # by EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class EvalTransform:
    """Resize the short side to `size` (bicubic), crop the centre, normalise; see `to_rgb` for `greys`.

    With the `normalisation` "cifar10" or "cifar100" resizing is bilinear, and mean and deviation the authors'.
    """

    size: int = 224
    normalisation: Normalisation = "clip"
    greys: str = WINDOW

    def __call__(self, image: Image.Image, rng: random.Random | None = None) -> "Tensor":
        """Transform an image of any mode to float32 (3, size, size); `rng` is not used."""
        return _normalised(self.crop(image), self.normalisation)

    def crop(self, image: Image.Image, rng: random.Random | None = None) -> Image.Image:
        """Return the crop for the tower: RGB, size x size, not normalised."""
        image = to_rgb(image, self.greys)
        *_, width, height = part = _without_ends(*image.size)
        short = min(width, height)
        width, height = int(self.size * width / short), int(self.size * height / short)
        left, top = round((width - self.size) / 2), round((height - self.size) / 2)
        resampling = Image.Resampling.BICUBIC if self.normalisation == "clip" else Image.Resampling.BILINEAR
        image = _part(image, part).resize((width, height), resampling)
        return image.crop((left, top, left + self.size, top + self.size))

    @property
    def spec(self) -> str:
        """Exact description of the transform in one line, for manifests and cache keys."""
        upright, how = _upright_spec(self.greys), "bicubic" if self.normalisation == "clip" else "bilinear"
        return (
            f"{upright}, short side {self.size} {how}, centre crop {self.size}, {_normalise_spec(self.normalisation)}"
        )


def preprocess(image: ImageLike, size: int = 224) -> "Tensor":
    """Preprocess an image for a tower of images of `size` x `size`: float32 (3, size, size), normalised.

    The image is a path, an open image, a NumPy array or a tensor. For a model's size use `model.preprocess(image)`.

    Example:
        >>> preprocess("cat.jpg").shape                                    # doctest: +SKIP
        torch.Size([3, 224, 224])
    """
    return EvalTransform(size)(open_image(image))


@dataclass(frozen=True)
class TrainTransform:
    """Resize a random part of the image to `size` (bicubic), mirror it with probability `flip`, and normalise.

    The part's share of the area is uniform in `scale`, and its ratio of width to height log-uniform in `ratio`; after
    ten draws that do not fit, it is the largest central part with an allowed ratio. See `to_rgb` for `greys`.
    """

    size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    greys: str = WINDOW

    def __call__(self, image: Image.Image, rng: random.Random) -> "Tensor":
        """Transform an image of any mode to float32 (3, size, size)."""
        return _normalised(self.crop(image, rng))

    def crop(self, image: Image.Image, rng: random.Random) -> Image.Image:
        """Return the crop for the tower: RGB, size x size, not normalised.

        It uses only `rng.random()`, whose stream Python keeps stable, so that crops of `random.Random(seed)` are the
        same on every platform and in every version.
        """
        image = to_rgb(image, self.greys)
        part = self.sample_box(*image.size, rng)
        image = _part(image, part).resize((self.size, self.size), Image.Resampling.BICUBIC)
        return ImageOps.mirror(image) if rng.random() < self.flip else image

    def sample_box(self, width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
        """Draw a part (left, top, width, height) of an image of this size."""
        low, high = self.ratio
        for _ in range(10):
            area = width * height * _uniform(rng, *self.scale)
            ratio = math.exp(_uniform(rng, math.log(low), math.log(high)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                top = int(rng.random() * (height - h + 1))
                left = int(rng.random() * (width - w + 1))
                return left, top, w, h
        w = min(width, round(height * high))
        h = min(height, round(width / low))
        return (width - w) // 2, (height - h) // 2, w, h

    @property
    def spec(self) -> str:
        """Exact description of the transform in one line, for manifests and cache keys."""
        return (
            f"{_upright_spec(self.greys)}, random resized crop {self.size} bicubic "
            f"scale {self.scale} ratio {self.ratio}, flip {self.flip}, {_normalise_spec()}"
        )


def to_rgb(image: Image.Image, window: str = WINDOW) -> Image.Image:
    """Convert an image of any mode to upright 8-bit RGB; upright RGB is returned unchanged.

    EXIF orientation is applied. Transparency is removed as by `convert("RGB")`, which keeps the stored colour. Greys of
    more than 8 bits, which Pillow would clip or truncate, are converted by a window: "file" is that of the file, else
    the full range of the bit depth; others are "full", "data" (range of the image), "40/400" (centre and width) and
    "0..4095".
    """
    image.load()  # also rotates a TIFF and removes the tag
    turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    if turn is not None:
        image = image.transpose(turn)
    if has_more_bits(image):
        image = eight_bits(image, window)
    if image.mode in ("P", "PA", "RGBa"):  # Pillow cannot convert these directly
        image = image.convert("RGBA")
    try:
        return image if image.mode == "RGB" else image.convert("RGB")
    except ValueError as error:
        raise FedotpError(f"cannot convert an image of mode {image.mode} to RGB: {error}") from error


def _part(image: Image.Image, part: tuple[int, int, int, int]) -> Image.Image:
    """Return the part (left, top, width, height) of an image; the image itself if that is all of it."""
    left, top, width, height = part
    return image if part == (0, 0, *image.size) else image.crop((left, top, left + width, top + height))


def _without_ends(width: int, height: int) -> tuple[int, int, int, int]:
    """Return the middle part of a very long image, whose resized ends would need gigabytes and be cropped."""
    most = _LONGEST * min(width, height)
    across, along = max(0, (width - most) // 2), max(0, (height - most) // 2)
    return across, along, min(width, most), min(height, most)


def _uniform(rng: random.Random, low: float, high: float) -> float:
    return low + (high - low) * rng.random()


def _upright_spec(window: str) -> str:
    return "rgb-upright" if window == WINDOW else f"rgb-upright, window {window}"


def _normalise_spec(normalisation: Normalisation = "clip") -> str:
    mean, std = CHANNELS[normalisation]
    return f"mean {mean} std {std}"


def _normalised(image: Image.Image, normalisation: Normalisation = "clip") -> "Tensor":
    """Convert an RGB image to normalised float32 (3, H, W)."""
    import numpy as np
    import torch

    return normalise(torch.from_numpy(np.array(image)), normalisation)


def normalise(pixels: "Tensor", normalisation: Normalisation = "clip") -> "Tensor":
    """Convert RGB, uint8 (..., H, W, 3), to float32 (..., 3, H, W): (pixels / 255 - mean) / std.

    The result is bitwise the same on every device.
    """
    import torch

    white, mean, std = _constants(pixels.device, normalisation)
    pixels = pixels.movedim(-1, -3).to(torch.float32, memory_format=torch.contiguous_format)
    return pixels.div_(white).sub_(mean).div_(std)


@cache
def _constants(device: "torch.device", normalisation: Normalisation) -> "tuple[Tensor, Tensor, Tensor]":
    """Return 255, mean and standard deviation as tensors; for a number a GPU would multiply by the inverse."""
    import torch

    numbers = ((255.0,), *CHANNELS[normalisation])
    white, mean, std = (torch.tensor(v, dtype=torch.float32, device=device)[:, None, None] for v in numbers)
    return white, mean, std
