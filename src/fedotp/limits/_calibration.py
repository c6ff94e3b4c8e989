"""What a site's calibration images say: enough for sets of any coverage, and for p-values of images unlike them.

Scores of how well an image matches the class names (the largest probability, energy, maximum concept matching) need no
images of the site, and were measured, too: they find nothing where a backbone knows the strangers better than the
site's own images (docs/limits.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedotp._values import require_one_of
from fedotp.errors import FedotpError
from fedotp.limits._conformal import SCORE, Bools, Floats, Score, nonconformity, prediction_sets, threshold

FLAGGED = 0.05  # images with p-values up to this are flagged: of the site's own one in twenty
LEAST_IMAGES, MOST_IMAGES = 2, 100_000  # of a calibration
_LARGEST = 1e30  # of a number that is no promise
_ROUNDING = 1e-6  # by which probabilities may be beyond 0 and 1
_KEYS = ("score", "conformity", "outlying", "centre", "spread")
_PRIOR = "prior"  # a key, too, where there is one
_COMMON = 0.1  # share of the mean variance that is added to each: few images say little of a single number
_LEAST = 1e-12  # of a variance, where all images are one


@dataclass(frozen=True, eq=False)
class FeatureStatistics:
    """What the images of a site look like: `centre` (e,) and `spread` (e,) of their features (n, e).

    No image and no feature of one is in it, only means over all of them.
    """

    centre: Floats
    spread: Floats

    @classmethod
    def of(cls, features: Floats) -> "FeatureStatistics":
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


@dataclass(frozen=True, eq=False)
class Calibration:
    """What n images that a client did not train on say of its limits.

    Half of the images say what images of the site look like, the other half how far from that its images are: a
    distance from what an image itself has helped to draw would be too short.

    Attributes:
        conformity: (n,) rising, how badly the true class fits.
        outlying: (n - n // 2,) rising, how far images are from the centre of the others.
        statistics: those of n // 2 of the images.
        score: what the conformity scores are.
        log_prior: (K,) what was added to the logarithms of the probabilities; None for nothing.
    """

    conformity: Floats
    outlying: Floats
    statistics: FeatureStatistics
    score: Score = SCORE
    log_prior: Floats | None = None

    @classmethod
    def of(
        cls,
        probabilities: Floats,
        labels: NDArray[np.int64],
        features: Floats,
        score: Score = SCORE,
        log_prior: Floats | None = None,
    ) -> "Calibration":
        """By images with these probabilities (n, K), true classes (n,) and features (n, e)."""
        n = len(labels)
        if not LEAST_IMAGES <= n <= MOST_IMAGES:
            raise FedotpError(f"{n:,} calibration images: must be from {LEAST_IMAGES} to {MOST_IMAGES:,}")
        true = nonconformity(probabilities, score)[np.arange(n), labels]
        order = np.random.default_rng(n).permutation(n)
        statistics = FeatureStatistics.of(features[order[: n // 2]])
        outlying = np.sort(statistics.outlying(features[order[n // 2 :]]))
        return cls(np.sort(true), outlying, statistics, score, log_prior)

    def __repr__(self) -> str:
        return f"<Calibration by {len(self):,} images: {self.score}>"

    def __len__(self) -> int:
        """Return the number of calibration images."""
        return len(self.conformity)

    @property
    def can_flag(self) -> bool:
        """Whether there are enough images for any p-value to be small."""
        return 1 / (1 + len(self.outlying)) <= FLAGGED

    def holds_with(self, log_prior: Floats | None) -> bool:
        """Whether it was made with this class prior (K,): with another one it promises nothing."""
        if self.log_prior is None or log_prior is None:
            return self.log_prior is log_prior
        return self.log_prior.shape == log_prior.shape and bool(np.allclose(self.log_prior, log_prior, 0, _ROUNDING))

    def sets(self, probabilities: Floats, coverage: float, *, may_be_empty: bool = False) -> Bools:
        """Which classes (n, K) are in the sets of images with these probabilities (n, K)."""
        most = threshold(self.conformity, coverage)
        return prediction_sets(probabilities, most, self.score, may_be_empty=may_be_empty)

    def p_values(self, features: Floats) -> Floats:
        """How often (n,) one of the site's own images is at least as outlying as those with features (n, e)."""
        return p_values(self.outlying, self.statistics.outlying(features))

    # As JSON -----------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; `from_dict` reads it."""
        numbers = (self.conformity, self.outlying, self.statistics.centre, self.statistics.spread)
        prior = {} if self.log_prior is None else {_PRIOR: self.log_prior.tolist()}
        return {"score": self.score} | dict(zip(_KEYS[1:], (each.tolist() for each in numbers), strict=True)) | prior

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], width: int) -> "Calibration":
        """Read what `as_dict` wrote, for features of this `width` e; nothing in it is trusted."""
        if set(values) - {_PRIOR} != set(_KEYS):
            raise FedotpError(f"a calibration has {', '.join(_KEYS)}, not {', '.join(map(str, values))[:80]}")
        require_one_of(Score, "score", values["score"])
        conformity = _numbers(values, "conformity", LEAST_IMAGES, MOST_IMAGES, -_ROUNDING, 1 + _ROUNDING)
        m = len(conformity) - len(conformity) // 2
        outlying = _numbers(values, "outlying", m, m, 0, _LARGEST)
        centre = _numbers(values, "centre", width, width, -_LARGEST, _LARGEST)
        spread = _numbers(values, "spread", width, width, 1e-9, _LARGEST)
        for name, rising in (("conformity", conformity), ("outlying", outlying)):
            if bool((np.diff(rising) < 0).any()):
                raise FedotpError(f"{name} of a calibration must be sorted")
        log_prior = _numbers(values, _PRIOR, 1, MOST_IMAGES, -_LARGEST, 0) if _PRIOR in values else None
        return cls(conformity, outlying, FeatureStatistics(centre, spread), values["score"], log_prior)


def _numbers(values: Mapping[str, Any], key: str, fewest: int, most: int, low: float, high: float) -> Floats:
    """A list of `fewest` to `most` numbers from `low` to `high`."""
    numbers = values[key]
    if not isinstance(numbers, list) or not fewest <= len(numbers) <= most:
        raise FedotpError(f"{key} of a calibration must be a list of {fewest:,} to {most:,} numbers")
    if not all(type(value) in (int, float) and low <= value <= high for value in numbers):
        raise FedotpError(f"{key} of a calibration must be numbers from {low:g} to {high:g}")
    return np.array(numbers, np.float64)
