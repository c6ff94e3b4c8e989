"""A site's round as one row of numbers to be added up, and the average of a round from the sum of them.

    m, m where the loss is told, images seen, m loss, m P     m images, P all values of the shared parameters

The first three are whole, the others in fixed point.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedotp.errors import FedotpError
from fedotp.flower.secure._fixed import FixedPoint, Floats, Words

_WHOLE = 3
_MOST = 2**53


@dataclass(frozen=True, eq=False)
class Average:
    """What a sum says: the weighted average of the sites' values, their weight, their mean loss (nan: not told)."""

    values: dict[str, Floats]
    weight: int
    loss: float
    n_images: int


def n_numbers(values: Mapping[str, Floats]) -> int:
    """How many numbers a row has."""
    return _WHOLE + 1 + sum(value.size for value in values.values())


def row_of(fixed: FixedPoint, values: Mapping[str, Floats], *, weight: int, loss: float | None, n_images: int) -> Words:
    """One site's row; a loss of None is not told."""
    whole = np.array([weight, 0 if loss is None else weight, n_images], np.uint64)
    told = 0.0 if loss is None else float(np.clip(np.nan_to_num(loss), -fixed.bound, fixed.bound))
    flat = [np.array([told]), *(values[name].astype(np.float64).ravel() for name in sorted(values))]
    return np.concatenate([whole, fixed.encode(np.concatenate(flat), weight)])


def average_of(fixed: FixedPoint, total: Words, like: Mapping[str, Floats]) -> Average:
    """The average, of values `like` these; a sum that no sites can have is refused."""
    weight, telling, n_images = (int(number) for number in total[:_WHOLE])
    if not (1 <= weight <= fixed.n_sites * fixed.most_images and telling <= weight and n_images <= _MOST):
        raise FedotpError("the secure sum makes no sense: a site has masked other numbers than it was to")
    loss, *flat = np.split(fixed.decode(total[_WHOLE:]), np.cumsum([1, *(like[name].size for name in sorted(like))]))
    values = {name: (part / weight).reshape(like[name].shape) for name, part in zip(sorted(like), flat, strict=False)}
    return Average(values, weight, float(loss[0]) / telling if telling else float("nan"), n_images)
