"""How unlike an image is to those of a site: a distance from what they look like, and a p-value.

Scores of how well an image matches the class names (the largest probability, energy, maximum concept matching) need no
images of the site, and were measured, too: they find nothing where a backbone knows the strangers better than the
site's own images (docs/limits.md).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_COMMON = 0.1  # share of the mean variance that is added to each: few images say little of a single number
_LEAST = 1e-12  # of a variance, where all images are one


@dataclass(frozen=True, eq=False)
class Look:
    """What the images of a site look like: `centre` (e,) and `spread` (e,) of their features (n, e).

    No image and no feature of one is in it, only means over all of them.
    """

    centre: Floats
    spread: Floats

    @classmethod
    def of(cls, features: Floats) -> "Look":
        """That of images with these features (n, e)."""
        variance = features.var(0)
        return cls(features.mean(0), np.sqrt(variance + _COMMON * variance.mean() + _LEAST))

    def outlying(self, features: Floats) -> Floats:
        """How far (n,) images with features (n, e) are from the centre: the mean square, spreads being the unit."""
        distances: Floats = (((features - self.centre) / self.spread) ** 2).mean(-1)
        return distances


def p_values(known: Floats, values: Floats) -> Floats:
    """How often (n,) an image of the site is at least as outlying as these `values` (n,) are.

    `known` (m,), rising, are those of images of the site; the image itself counts as one of them. For an image
    that is exchangeable with them P(p <= t) <= t for every t: of the site's own images at most 5 % are flagged at 0.05.
    """
    at_least = len(known) - np.searchsorted(known, values, side="left").astype(np.float64)
    return (1 + at_least) / (1 + len(known))
