"""Fixed point: numbers as whole multiples of 2^-bits, added modulo 2^64.

Masks only cancel where addition is exact, which that of floating-point numbers is not. With n sites of at most M images
and values of at most B, no sum exceeds n (M B 2^bits + 1/2); `bits` is as large as 63 bits and a sign allow. A sum
over n sites is then off by n 2^-(bits + 1) at most, and an average, over n images or more, by 2^-(bits + 1): with ten
sites of up to 1,000 images and B = 64, by 2^-44.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedotp.errors import FedotpError

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

_HALF = 2**63  # sums from -2^63 to 2^63 - 1
_LEAST_BITS = 16


@dataclass(frozen=True)
class FixedPoint:
    """What `n_sites` sites that weigh up to `most_images` each can add up, of values from -`bound` to `bound`."""

    n_sites: int
    most_images: int
    bound: int

    def __post_init__(self) -> None:
        if min(self.n_sites, self.most_images, self.bound) < 1 or self.bits < _LEAST_BITS:
            raise FedotpError(
                f"sums over {self.n_sites} sites of up to {self.most_images} images, of values up to {self.bound}, do "
                "not fit 64 bits; right are fewer images that a site counts with (--max-images), or a smaller "
                "--secure-range"
            )

    @cached_property
    def bits(self) -> int:
        """Binary places after the point."""
        bits = 63
        while bits and self.n_sites * (self.most_images * self.bound * 2**bits + 1) >= _HALF:
            bits -= 1
        return bits

    def encode(self, values: Floats, weight: int) -> Words:
        """Multiples of `weight` times `values`, to the nearest; what does not fit is refused."""
        if not 0 <= weight <= self.most_images:
            raise FedotpError(f"a weight of {weight} images does not fit; right is from 0 to {self.most_images}")
        if not np.abs(values).max(initial=0.0) <= self.bound:  # which what is no number is not
            raise FedotpError(
                f"a value of {np.abs(values).max():.3g} does not fit the secure sum; right is up to {self.bound} "
                "(--secure-range)"
            )
        scaled = np.rint(np.ldexp(weight * values.astype(np.float64), self.bits))
        return np.asarray(scaled.astype(np.int64).view(np.uint64))

    def decode(self, total: Words) -> Floats:
        """The sum that `total` stands for; a sum that no sites can have is refused."""
        signed = total.view(np.int64)
        most = self.n_sites * (self.most_images * self.bound * 2**self.bits + 1)
        if len(signed) and (int(signed.max()) > most or int(signed.min()) < -most):
            raise FedotpError("the secure sum makes no sense: a site has masked other numbers than it was to")
        return np.asarray(np.ldexp(signed.astype(np.float64), -self.bits))
