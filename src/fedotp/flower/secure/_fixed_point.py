"""Fixed-point numbers: integer multiples of 2^-bits, added modulo 2^64, and a site's row of them.

Masks cancel only if addition is exact, unlike that of floating-point numbers. With n sites of at most M images and
values of at most B, no sum exceeds n (M B 2^bits + 1/2); `bits` is as large as 63 bits and a sign allow. The error is
at most n 2^-(bits + 1) for a sum over n sites, and 2^-(bits + 1) for an average over n images or more: 2^-44 with ten
sites of up to 1,000 images and B = 64.

The row of a site with m images, for P, all values of the shared parameters; the first three are integers:

    m, m if the loss is shared, images seen, m loss, m P
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedotp.errors import FedotpError

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

_HALF = 2**63  # sums from -2^63 to 2^63 - 1
_LEAST_BITS = 16
_WHOLE = 3  # integers at the start of a row
_MOST_IMAGES = 2**53


@dataclass(frozen=True)
class FixedPoint:
    """The format for sums over `n_sites` sites of weight up to `most_images`, and values from -`bound` to `bound`."""

    n_sites: int
    most_images: int
    bound: int

    def __post_init__(self) -> None:
        if min(self.n_sites, self.most_images, self.bound) < 1 or self.bits < _LEAST_BITS:
            raise FedotpError(
                f"sums over {self.n_sites} sites of up to {self.most_images} images and values up to {self.bound} do "
                "not fit 64 bits; decrease --max-images or --secure-range"
            )

    @cached_property
    def bits(self) -> int:
        """Number of fractional bits."""
        bits = 63
        while bits and self.n_sites * (self.most_images * self.bound * 2**bits + 1) >= _HALF:
            bits -= 1
        return bits

    def encode(self, values: Floats, weight: int) -> Words:
        """Encode `weight` times `values`, rounded to the nearest; raise FedotpError if they are out of range."""
        if not 0 <= weight <= self.most_images:
            raise FedotpError(f"the weight must be from 0 to {self.most_images} images, got {weight}")
        if not np.abs(values).max(initial=0.0) <= self.bound:  # nan also fails
            raise FedotpError(
                f"values in a secure sum must be at most {self.bound} (--secure-range), got {np.abs(values).max():.3g}"
            )
        scaled = np.rint(np.ldexp(weight * values.astype(np.float64), self.bits))
        return np.asarray(scaled.astype(np.int64).view(np.uint64))

    def decode(self, total: Words) -> Floats:
        """Decode a sum; raise FedotpError if it is impossible."""
        signed = total.view(np.int64)
        most = self.n_sites * (self.most_images * self.bound * 2**self.bits + 1)
        if len(signed) and (int(signed.max()) > most or int(signed.min()) < -most):
            raise FedotpError("the secure sum is invalid: a site has masked wrong values")
        return np.asarray(np.ldexp(signed.astype(np.float64), -self.bits))


@dataclass(frozen=True, eq=False)
class Average:
    """The weighted average of the sites' values, their weight, their mean loss (nan: not shared)."""

    values: dict[str, Floats]
    weight: int
    loss: float
    n_images: int


def n_numbers(values: Mapping[str, Floats]) -> int:
    """Count the numbers of a row."""
    return _WHOLE + 1 + sum(value.size for value in values.values())


def row_of(fixed: FixedPoint, values: Mapping[str, Floats], *, weight: int, loss: float | None, n_images: int) -> Words:
    """Encode a site's row; a loss of None is not shared."""
    whole = np.array([weight, 0 if loss is None else weight, n_images], np.uint64)
    shared = 0.0 if loss is None else float(np.clip(np.nan_to_num(loss), -fixed.bound, fixed.bound))
    flat = [np.array([shared]), *(values[name].astype(np.float64).ravel() for name in sorted(values))]
    return np.concatenate([whole, fixed.encode(np.concatenate(flat), weight)])


def average_of(fixed: FixedPoint, total: Words, like: Mapping[str, Floats]) -> Average:
    """Decode a sum of rows, of values with the shapes of `like`; raise FedotpError if it is impossible."""
    weight, sharing, n_images = (int(number) for number in total[:_WHOLE])
    if not (1 <= weight <= fixed.n_sites * fixed.most_images and sharing <= weight and n_images <= _MOST_IMAGES):
        raise FedotpError("the secure sum is invalid: a site has masked wrong values")
    loss, *flat = np.split(fixed.decode(total[_WHOLE:]), np.cumsum([1, *(like[name].size for name in sorted(like))]))
    values = {name: (part / weight).reshape(like[name].shape) for name, part in zip(sorted(like), flat, strict=False)}
    return Average(values, weight, float(loss[0]) / sharing if sharing else float("nan"), n_images)
