"""Chance, foreseeable or not."""

import math
import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Chance(Protocol):
    """Where draws come from: a NumPy generator in a simulation, `Entropy` where somebody may want to foretell them."""

    def random(self, size: int) -> Floats:
        """Uniform numbers (size,) in [0, 1)."""

    def standard_normal(self, size: tuple[int, ...]) -> Floats:
        """Standard normal numbers of this shape."""


class Entropy:
    """The operating system's: whoever knows the seed of a federation, as all sites do, cannot foretell it."""

    def random(self, size: int) -> Floats:
        """Uniform numbers (size,) in [0, 1)."""
        return np.asarray(_bits(size) * 2.0**-53)

    def standard_normal(self, size: tuple[int, ...]) -> Floats:
        """Standard normal numbers of this shape."""
        return gaussian(size)


def gaussian(shape: tuple[int, ...]) -> Floats:
    """Standard normal numbers from the operating system's entropy: those of NumPy's generators can be foretold.

    Each is made of four by Box and Muller: of a single one, the gaps between floating-point numbers could tell what
    it was added to (Holohan and Braghin, Secure random sampling in differential privacy, 2021).
    """
    uniform = ((_bits(8 * math.prod(shape)) + 0.5) * 2.0**-53).reshape(2, 4, *shape)  # never 0
    four = np.sqrt(-2 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])
    return np.asarray(four.sum(0) / 2)


def _bits(n: int) -> Floats:
    """Whole numbers (n,) from 0 to 2^53 - 1."""
    return (np.frombuffer(os.urandom(8 * n), np.uint64) >> 11).astype(np.float64)
