"""From pictures to the pixels CLIP was trained on. Pillow resamples, as in OpenAI's code.

The order is: upright RGB first, then crop and resize. OpenAI resizes before it converts to RGB, which differs
for palette images (resized there without smoothing) and for transparent ones.

Neither torch nor NumPy is imported before it is needed: processes that only crop start faster without.
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
"""How images are shown: as CLIP was trained, or as the authors' code shows CIFAR, for comparison with it."""
CHANNELS: dict[Normalisation, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "clip": (MEAN, STD),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
"""Mean and standard deviation of red, green and blue."""

_LONGEST = 16  # times as long as across: more of a picture's length is not scaled
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
    """Short side to `size` (bicubic), centre crop, CLIP's mean and standard deviation; see `to_rgb` for `greys`.

    With the `normalisation` "cifar10" or "cifar100" resizing is bilinear, mean and standard deviation are the authors'.
    """

    size: int = 224
    normalisation: Normalisation = "clip"
    greys: str = WINDOW

    def __call__(self, image: Image.Image, rng: random.Random | None = None) -> "Tensor":
        """A picture of any mode to float32 (3, size, size).

        `rng` is not used; it is there so that both transforms can be called alike.
        """
        return _normalised(self.crop(image), self.normalisation)

    def crop(self, image: Image.Image, rng: random.Random | None = None) -> Image.Image:
        """What the tower sees of a picture: RGB, size x size, not normalised."""
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
        """One line that says exactly what is done, for manifests and cache keys."""
        upright, how = _upright_spec(self.greys), "bicubic" if self.normalisation == "clip" else "bilinear"
        return (
            f"{upright}, short side {self.size} {how}, centre crop {self.size}, {_normalise_spec(self.normalisation)}"
        )


def preprocess(image: ImageLike, size: int = 224) -> "Tensor":
    """What a tower for images of `size` x `size` is given of an image: float32 (3, size, size), normalised.

    The image is a path, a picture, a NumPy array or a tensor. A model knows its size: `model.preprocess(image)`.

    Example:
        >>> preprocess("cat.jpg").shape                                    # doctest: +SKIP
        torch.Size([3, 224, 224])
    """
    return EvalTransform(size)(open_image(image))


@dataclass(frozen=True)
class TrainTransform:
    """A random part of the picture, resized to `size` (bicubic), mirrored half the time; normalised.

    The part covers a share of the area uniform in `scale`, and its ratio of width to height is log-uniform in
    `ratio`; after ten draws that do not fit, the largest central part with an allowed ratio is taken. See `to_rgb` for
    `greys`, the window of greys.
    """

    size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    greys: str = WINDOW

    def __call__(self, image: Image.Image, rng: random.Random) -> "Tensor":
        """A picture of any mode to float32 (3, size, size)."""
        return _normalised(self.crop(image, rng))

    def crop(self, image: Image.Image, rng: random.Random) -> Image.Image:
        """What the tower sees of a picture: RGB, size x size, not normalised.

        All chance comes from `rng.random()`, whose stream Python promises to keep: a crop of
        `random.Random(seed)` is the same on every platform and in every version.
        """
        image = to_rgb(image, self.greys)
        part = self.sample_box(*image.size, rng)
        image = _part(image, part).resize((self.size, self.size), Image.Resampling.BICUBIC)
        return ImageOps.mirror(image) if rng.random() < self.flip else image

    def sample_box(self, width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
        """A random part (left, top, width, height) of a picture of this size."""
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
        """One line that says exactly what is done, for manifests and cache keys."""
        return (
            f"{_upright_spec(self.greys)}, random resized crop {self.size} bicubic "
            f"scale {self.scale} ratio {self.ratio}, flip {self.flip}, {_normalise_spec()}"
        )


def to_rgb(image: Image.Image, window: str = WINDOW) -> Image.Image:
    """Upright 8-bit RGB from a picture of any mode.

    EXIF orientation is applied. Transparency is dropped as by `convert("RGB")`, which leaves the colour
    stored under it. Greys of more than 8 bits are seen through a window, where Pillow by itself would clip or truncate
    them: "file" is that of the file, where it has one, else the full range of the bit depth; "full", "data" (of the
    picture), "40/400" (centre and width) and "0..4095" are others. What is upright RGB already is returned itself.
    """
    image.load()  # of a TIFF this turns the picture already, and removes the tag
    turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    if turn is not None:
        image = image.transpose(turn)
    if has_more_bits(image):
        image = eight_bits(image, window)
    if image.mode in ("P", "PA", "RGBa"):  # Pillow wants these unfolded before it drops the alpha channel
        image = image.convert("RGBA")
    try:
        return image if image.mode == "RGB" else image.convert("RGB")
    except ValueError as error:
        raise FedotpError(f"a picture of mode {image.mode} cannot be turned into RGB: {error}") from error


def _part(image: Image.Image, part: tuple[int, int, int, int]) -> Image.Image:
    """The part (left, top, width, height) of a picture; the picture itself if that is all of it."""
    left, top, width, height = part
    return image if part == (0, 0, *image.size) else image.crop((left, top, left + width, top + height))


def _without_ends(width: int, height: int) -> tuple[int, int, int, int]:
    """The middle of a very long picture: scaled to `size` across, all its length would take gigabytes unseen."""
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
    """An RGB picture to float32 (3, H, W)."""
    import numpy as np
    import torch

    return normalise(torch.from_numpy(np.array(image)), normalisation)


def normalise(pixels: "Tensor", normalisation: Normalisation = "clip") -> "Tensor":
    """RGB as uint8 (..., H, W, 3) to float32 (..., 3, H, W): (pixels / 255 - mean) / std, step by step.

    On any device it gives the same bits.
    """
    import torch

    white, mean, std = _constants(pixels.device, normalisation)
    pixels = pixels.movedim(-1, -3).to(torch.float32, memory_format=torch.contiguous_format)
    return pixels.div_(white).sub_(mean).div_(std)


@cache
def _constants(device: "torch.device", normalisation: Normalisation) -> "tuple[Tensor, Tensor, Tensor]":
    """255, mean and standard deviation. By a plain number a GPU does not divide: it multiplies by the inverse."""
    import torch

    numbers = ((255.0,), *CHANNELS[normalisation])
    white, mean, std = (torch.tensor(v, dtype=torch.float32, device=device)[:, None, None] for v in numbers)
    return white, mean, std
