"""Split conformal prediction: sets of classes that hold the true one with a probability of one's choice.

Of n calibration images with the scores s_i = s(x_i, y_i), let q be the ceil((n + 1) * coverage)-th smallest. If a new
image and the calibration images are exchangeable, then

    P(y in {k : s(x, k) <= q}) >= coverage,    and = ceil((n + 1) * coverage) / (n + 1) where no two scores are equal,

whatever the classifier does (Vovk et al. 2005; Lei et al. 2018). A worse classifier has larger sets, not less coverage.
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
"""How badly a class fits an image. Both promise the same.

lac: 1 - p_k (Sadinle, Lei and Wasserman 2019). The sets are the smallest on average.
aps: the probability of all classes that are at least as probable (Romano, Sesia and Candes 2020). The sets are larger,
and adapt more: small for clear images, large for hard ones.
"""
SCORES: tuple[Score, ...] = get_args(Score)
SCORE: Score = "lac"
COVERAGES = (0.8, 0.9, 0.95, 0.99)  # that people ask for


def nonconformity(probabilities: Floats, score: Score = SCORE, draws: Floats | None = None) -> Floats:
    """Scores (n, K) of all classes for probabilities (n, K); higher: fits worse.

    `draws` (n,), uniform from 0 to 1, randomise aps: of the class's own probability only that share counts, which
    makes smaller sets that differ from draw to draw. Of equally probable classes the first comes first.
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
    """Refuse what is no share between 0 and 1."""
    require(0 < coverage < 1, "coverage", coverage, "between 0 and 1, for example 0.9")


def rank(n_images: int, coverage: float) -> int:
    """Which of n sorted scores is the threshold, ceil((n + 1) * coverage), counted from 1; n + 1 if none is.

    The coverage is taken as the decimal number it was written as: 0.9 of ten is 9, and not a little more.
    """
    require_coverage(coverage)
    return math.ceil((n_images + 1) * Fraction(repr(float(coverage))))


def least_images(coverage: float) -> int:
    """The fewest calibration images with which this coverage can be promised."""
    require_coverage(coverage)
    exact = Fraction(repr(float(coverage)))
    return math.ceil(exact / (1 - exact))


def threshold(scores: Floats, coverage: float) -> float:
    """The largest score that a class of a set may have, by the scores (n,), rising, of calibration images."""
    place = rank(len(scores), coverage)
    if place > len(scores):
        raise FedotpError(
            f"a coverage of {coverage:g} needs at least {least_images(coverage):,} calibration images, "
            f"and there are {len(scores):,}; calibrate with more, or ask for {_possible(len(scores))}"
        )
    return float(scores[place - 1])


def _possible(n_images: int) -> str:
    """The most that n images can promise, rounded down to what one would ask for."""
    most = math.floor(1000 * Fraction(n_images, n_images + 1)) / 1000
    return f"{most:g} at most"


def prediction_sets(
    probabilities: Floats,
    most: float,
    score: Score = SCORE,
    *,
    may_be_empty: bool = False,
    draws: Floats | None = None,
) -> Bools:
    """Which classes (n, K) are in the sets: those with scores up to `most`, the `threshold`.

    The most probable class always is, unless sets `may_be_empty`. That only adds to the coverage: a classifier that is
    right more often than was asked for covers as often as it is right.
    """
    found = nonconformity(probabilities, score, draws) <= most
    if not may_be_empty:
        found[np.arange(len(found)), probabilities.argmax(-1)] = True
    return found
