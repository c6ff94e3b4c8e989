"""How Pillow resizes eight-bit pictures (bicubic), in numbers: of which pixels an output pixel is made, and how.

Pillow works in integers. Along a row it multiplies each pixel by a weight with 22 binary digits behind the point, adds
up and rounds to eight bits; then it does the same along the columns of what came out, or first along columns where that
is less work. The same weights in the same order give Pillow's pixels, to the last bit.
"""

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedotp.clip._preprocess import Window

PRECISION = 22  # binary digits of a weight behind the point
_A = -0.5  # of Keys' cubic
_SUPPORT = 2.0

Ints = NDArray[np.int32]


class Taps(NamedTuple):
    """For each of n output pixels along one axis: its first input pixel (n,), and the weights (n, k) from there on."""

    first: Ints
    weights: Ints


class Passes(NamedTuple):
    """How the square of a window is made: along rows by the `columns` of the square, along columns by its `rows`."""

    columns: Taps
    rows: Taps
    rows_first: bool


def passes(window: Window, size: int) -> Passes:
    """What makes the square, size x size, that `window` shows of a picture."""
    left, top, width, height = window.part
    columns = _square(width, window.scaled[0], window.corner[0], size)
    rows = _square(height, window.scaled[1], window.corner[1], size)
    if window.mirrored:
        columns = Taps(columns.first[::-1], columns.weights[::-1])
    lower, narrower = height - window.scaled[1], width - window.scaled[0]
    return Passes(
        Taps(columns.first + left, columns.weights),
        Taps(rows.first + top, rows.weights),
        rows_first=_chooses_order() and 0 < lower > 2 * narrower,
    )


@cache
def _chooses_order() -> bool:
    """Whether this Pillow begins with what loses most lines, as newer ones do, not always along rows."""
    picture = Image.frombytes("L", (3, 40), bytes(i * 89 % 256 for i in range(120)))
    along_rows = picture.resize((2, 40), Image.Resampling.BICUBIC).resize((2, 10), Image.Resampling.BICUBIC)
    return picture.resize((2, 10), Image.Resampling.BICUBIC).tobytes() != along_rows.tobytes()


@lru_cache(maxsize=1024)
def _square(n_in: int, n_out: int, start: int, size: int) -> Taps:
    """Output pixels `start` to `start + size` of `n_in` pixels that are resized to `n_out`, as Pillow computes them."""
    scale = n_in / n_out
    blur = max(scale, 1.0)
    support = _SUPPORT * blur
    centre = (np.arange(start, start + size) + 0.5) * scale
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + support + 0.5).astype(np.int64), n_in)
    taps = np.arange(int((last - first).max()))
    weights = _cubic((taps + first[:, None] - centre[:, None] + 0.5) * (1.0 / blur))  # (n, k)
    weights[first[:, None] + taps >= last[:, None]] = 0.0
    total = np.zeros(size)
    for k in taps:  # in Pillow's order
        total += weights[:, k]
    weights = weights / total[:, None] * (1 << PRECISION)
    return Taps(first.astype(np.int32), (weights + np.copysign(0.5, weights)).astype(np.int32))


def _cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.abs(x)
    near = ((_A + 2.0) * x - (_A + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * _A
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))
