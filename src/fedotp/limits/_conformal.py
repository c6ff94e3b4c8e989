"""Split conformal prediction: sets of classes that contain the true one with a chosen probability.

Of n calibration images with the scores s_i = s(x_i, y_i), let q be the ceil((n + 1) * coverage)-th smallest. If a new
image and the calibration images are exchangeable, then

    P(y in {k : s(x, k) <= q}) >= coverage,    and = ceil((n + 1) * coverage) / (n + 1) if no two scores are equal,

for any classifier (Vovk et al. 2005; Lei et al. 2018). A worse classifier has larger sets, not less coverage.
"""

import math
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedotp._values import require, require_one_of
from fedotp.errors import FedotpError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

Score = Literal["lac", "aps"]
"""Nonconformity of a class and an image, with the same guarantee:

lac: 1 - p_k (Sadinle, Lei and Wasserman 2019). The sets are the smallest on average.
aps: the probability of all classes that are at least as probable (Romano, Sesia and Candes 2020). The sets are larger
and more adaptive: small for clear images, large for hard ones.
"""
SCORES: tuple[Score, ...] = get_args(Score)
SCORE: Score = "lac"
COVERAGES = (0.8, 0.9, 0.95, 0.99)  # usual choices


def nonconformity(probabilities: Floats, score: Score = SCORE, draws: Floats | None = None) -> Floats:
    """Return nonconformity scores (n, K) of all classes for probabilities (n, K).

    `draws` (n,), uniform from 0 to 1, randomise aps: only that share of the class's own probability counts, which makes
    sets smaller but random. Ties are resolved in the order of classes.
    """
    require_one_of(Score, "score", score)
    if score == "lac":
        return 1 - probabilities
    order = np.argsort(-probabilities, axis=-1, kind="stable")
    falling = np.take_along_axis(probabilities, order, -1)
    mass = falling.cumsum(-1)
    if draws is not None:
        mass -= falling * (1 - draws[:, None])
    scores = np.empty_like(mass)
    np.put_along_axis(scores, order, mass, -1)
    return scores


def require_coverage(coverage: float) -> None:
    """Raise an error unless coverage is between 0 and 1."""
    require(0 < coverage < 1, "coverage", coverage, "between 0 and 1, for example 0.9")


def rank(n_images: int, coverage: float) -> int:
    """Return the rank of the threshold among n sorted scores, ceil((n + 1) * coverage), counted from 1; n + 1 if none.

    The coverage is taken as a decimal number, without its rounding error as a float.
    """
    require_coverage(coverage)
    return math.ceil((n_images + 1) * Fraction(repr(float(coverage))))


def least_images(coverage: float) -> int:
    """Return the minimum number of calibration images for this coverage."""
    require_coverage(coverage)
    exact = Fraction(repr(float(coverage)))
    return math.ceil(exact / (1 - exact))


def threshold(scores: Floats, coverage: float) -> float:
    """Return the largest score of a class in a set, from the ascending scores (n,) of calibration images."""
    place = rank(len(scores), coverage)
    if place > len(scores):
        most = math.floor(1000 * Fraction(len(scores), len(scores) + 1)) / 1000  # permitted by so many images
        raise FedotpError(
            f"a coverage of {coverage:g} needs at least {least_images(coverage):,} calibration images, "
            f"got {len(scores):,}; calibrate with more images, or use a coverage of at most {most:g}"
        )
    return float(scores[place - 1])


def prediction_sets(probabilities: Floats, most: float, score: Score = SCORE, *, may_be_empty: bool = False) -> Bools:
    """Return the members (n, K) of the sets: classes with scores up to `most`, the `threshold`.

    The most probable class is always included, unless sets `may_be_empty`. This can only increase the coverage.
    """
    found = nonconformity(probabilities, score) <= most
    if not may_be_empty:
        found[np.arange(len(found)), probabilities.argmax(-1)] = True
    return found
