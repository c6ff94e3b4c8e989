"""Windows of pictures, resized by a GPU to the same bits as by Pillow: two kernels (Triton), one for each pass."""

import random
from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fedotp.clip._preprocess import EvalTransform, Shown, TrainTransform
from fedotp.clip._resample import PRECISION, Passes, Taps, passes

_GEOMETRY = 5  # numbers for each picture


@triton.jit(do_not_specialize=["K", "source_picture", "target_picture"])  # one kernel for pictures of all sizes
def _pass(
    source, target, geometry, first, weights, K, source_picture, target_picture,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr, GEOMETRY: tl.constexpr,
):  # fmt: skip
    """One line of one picture: SIZE pixels made of up to K pixels of the source each.

    `geometry` (n, 5): lines, steps in bytes from line to line and from pixel to pixel in the source, and in the target.
    """
    picture, line = tl.program_id(0).to(tl.int64), tl.program_id(1)
    geometry += picture * GEOMETRY
    if line < tl.load(geometry):
        pixel = tl.arange(0, BLOCK)
        inside = pixel < SIZE
        start = tl.load(first + picture * SIZE + pixel, inside, 0)
        colour = tl.arange(0, 4)
        there = inside[:, None] & (colour < 3)[None, :]
        step = tl.load(geometry + 2)
        source += picture * source_picture + line * tl.load(geometry + 1)
        total = tl.full((BLOCK, 4), 1 << (PRECISION - 1), tl.int32)
        for k in range(K):
            weight = tl.load(weights + (picture * SIZE + pixel) * K + k, inside, 0)
            seen = there & (weight != 0)[:, None]  # behind the last pixel weights are 0
            value = tl.load(source + ((start + k) * step)[:, None] + colour[None, :], seen, 0)
            total += value.to(tl.int32) * weight[:, None]
        total = tl.minimum(tl.maximum(total >> PRECISION, 0), 255)
        target += picture * target_picture + line * tl.load(geometry + 3)
        tl.store(target + (pixel * tl.load(geometry + 4))[:, None] + colour[None, :], total.to(tl.uint8), there)


def resize(pictures: Tensor, shown: Sequence[Shown], size: int, out: Tensor | None = None) -> Tensor:
    """The squares (n, size, size, 3) that windows show of n pictures, uint8.

    `pictures` (n, bytes) has each picture, RGB, from the beginning of its row on; what is behind it is not looked at.
    """
    device, n = pictures.device, len(shown)
    ways = [passes(one.window, size) for one in shown]
    n_lines = max(one.width if way.rows_first else one.height for one, way in zip(shown, ways, strict=True))
    out = torch.empty(n, size, size, 3, dtype=torch.uint8, device=device) if out is None else out
    between = torch.empty(n, n_lines, size, 3, dtype=torch.uint8, device=device)
    for number, (source, target, lines) in enumerate(((pictures, between, n_lines), (between, out, size))):
        taps = [_taps(way, number) for way in ways]
        most = max(tap.weights.shape[1] for tap in taps)
        geometry = [_geometry(one, way, size, number) for one, way in zip(shown, ways, strict=True)]
        numbers = np.concatenate([np.array(geometry, np.int32).ravel(), *_packed(taps, most)])
        packed = torch.from_numpy(numbers)
        if device.type == "cuda":
            packed = packed.pin_memory().to(device, non_blocking=True)
        geometry_at, first_at, weights_at = packed.split([n * _GEOMETRY, n * size, n * size * most])
        _pass[(n, lines)](
            source, target, geometry_at, first_at, weights_at, most, source.stride(0), target.stride(0),
            SIZE=size, BLOCK=triton.next_power_of_2(size), PRECISION=PRECISION, GEOMETRY=_GEOMETRY,
        )  # fmt: skip
    return out


def resizes_like_pillow(device: torch.device) -> bool:
    """Whether `resize` gives Pillow's pixels here: a few pictures are compared, since neither of them is ours alone."""
    size, shapes = 8, [(13, 17), (8, 8), (20, 9), (3, 30)]
    transforms = (EvalTransform(size), TrainTransform(size))
    noise = random.Random(0)
    pictures = [Image.frombytes("RGB", shape, noise.randbytes(3 * shape[0] * shape[1])) for shape in shapes]
    rows = np.zeros((len(shapes), max(3 * width * height for width, height in shapes)), np.uint8)
    for row, picture in zip(rows, pictures, strict=True):
        content = np.frombuffer(picture.tobytes(), np.uint8)
        row[: len(content)] = content
    there = torch.from_numpy(rows).to(device)
    for transform in transforms:
        shown = [Shown(*shape, transform.window(*shape, random.Random(1))) for shape in shapes]
        expected = [np.asarray(one.window.cut(picture, size)) for one, picture in zip(shown, pictures, strict=True)]
        if not np.array_equal(resize(there, shown, size).cpu().numpy(), np.stack(expected)):
            return False
    return True


def _taps(way: Passes, number: int) -> Taps:
    """Of the first or second pass."""
    return way.rows if way.rows_first != bool(number) else way.columns


def _packed(taps: Sequence[Taps], most: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """First pixels and weights of n pictures, flat, weights made up to `most` by zeros."""
    size = len(taps[0].first)
    weights = np.zeros((len(taps), size, most), np.int32)
    for row, tap in zip(weights, taps, strict=True):
        row[:, : tap.weights.shape[1]] = tap.weights
    return np.concatenate([tap.first for tap in taps]), weights.ravel()


def _geometry(one: Shown, way: Passes, size: int, number: int) -> tuple[int, ...]:
    """As `_pass` wants it. Between the passes a line has `size` pixels, whichever way it was read."""
    along, down = 3, 3 * one.width
    if number == 0:
        lines, line, pixel = (one.width, along, down) if way.rows_first else (one.height, down, along)
        return lines, line, pixel, 3 * size, 3
    line, pixel = (3 * size, 3) if way.rows_first else (3, 3 * size)  # in the target; the source is turned
    return size, 3, 3 * size, line, pixel
