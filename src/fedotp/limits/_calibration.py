"""Calibration by images of a site: for prediction sets of any coverage, and for p-values of images unlike them.

Scores from the class names alone (the largest probability, energy, maximum concept matching) were evaluated, too: they
fail if a backbone knows the foreign images better than the site's own (docs/limits.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedotp._values import require_one_of
from fedotp.errors import FedotpError
from fedotp.limits._conformal import SCORE, Bools, Floats, Score, nonconformity, prediction_sets, threshold

FLAGGED = 0.05  # images with p-values up to this are flagged: at most 5 % of the site's own
LEAST_IMAGES, MOST_IMAGES = 2, 100_000  # of a calibration
_LARGEST = 1e30  # limit of numbers
_ROUNDING = 1e-6  # tolerance of probabilities outside 0 and 1
_KEYS = ("score", "conformity", "outlying", "centre", "spread")
_PRIOR = "prior"  # optional key
_COMMON = 0.1  # share of the mean variance added to each variance, since few images estimate it poorly
_LEAST = 1e-12  # minimum variance


@dataclass(frozen=True, eq=False)
class Calibration:
    """Calibration of a client by n images that it did not train on.

    Half of the images determine `centre` and `spread`, the other half the distances from them: distances of the first
    half itself would be too small.

    Attributes:
        conformity: (n,) ascending, nonconformity of the true class.
        outlying: (n - n // 2,) ascending, distances from the centre of the other images.
        centre: (e,) mean of the features of n // 2 of the images.
        spread: (e,) their standard deviation.
        score: type of the conformity scores.
        log_prior: (K,) added to the log probabilities; None for nothing.
    """

    conformity: Floats
    outlying: Floats
    centre: Floats
    spread: Floats
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
        """Calibrate with images of these probabilities (n, K), true classes (n,) and features (n, e)."""
        n = len(labels)
        if not LEAST_IMAGES <= n <= MOST_IMAGES:
            raise FedotpError(f"calibration images: must be from {LEAST_IMAGES} to {MOST_IMAGES:,}, got {n:,}")
        true = nonconformity(probabilities, score)[np.arange(n), labels]
        order = np.random.default_rng(n).permutation(n)
        half, others = features[order[: n // 2]], features[order[n // 2 :]]
        variance = half.var(0)
        centre, spread = half.mean(0), np.sqrt(variance + _COMMON * variance.mean() + _LEAST)
        found = cls(np.sort(true), np.zeros(0), centre, spread, score, log_prior)
        return replace(found, outlying=np.sort(found.distances(others)))

    def __repr__(self) -> str:
        return f"<Calibration by {len(self):,} images: {self.score}>"

    def __len__(self) -> int:
        """Return the number of calibration images."""
        return len(self.conformity)

    @property
    def can_flag(self) -> bool:
        """True if there are enough images for a small p-value."""
        return 1 / (1 + len(self.outlying)) <= FLAGGED

    def holds_with(self, log_prior: Floats | None) -> bool:
        """True if it was made with this class prior (K,): it is invalid with another one."""
        if self.log_prior is None or log_prior is None:
            return self.log_prior is log_prior
        return self.log_prior.shape == log_prior.shape and bool(np.allclose(self.log_prior, log_prior, 0, _ROUNDING))

    def sets(self, probabilities: Floats, coverage: float) -> Bools:
        """Return the members (n, K) of the prediction sets for these probabilities (n, K)."""
        return prediction_sets(probabilities, threshold(self.conformity, coverage), self.score)

    def distances(self, features: Floats) -> Floats:
        """Return the mean squared distances (n,) of features (n, e) from the centre, in units of the spread."""
        return np.asarray((((features - self.centre) / self.spread) ** 2).mean(-1))

    def p_values(self, features: Floats) -> Floats:
        """Return the shares (n,) of the site's images that are at least as outlying as these features (n, e).

        The image itself counts as one of them. If it is exchangeable with them, P(p <= t) <= t for every t: at most 5 %
        of the site's own images are flagged at 0.05.
        """
        values = self.distances(features)
        at_least = len(self.outlying) - np.searchsorted(self.outlying, values, side="left").astype(np.float64)
        return (1 + at_least) / (1 + len(self.outlying))

    # As JSON -----------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary for `from_dict`."""
        numbers = (self.conformity, self.outlying, self.centre, self.spread)
        prior = {} if self.log_prior is None else {_PRIOR: self.log_prior.tolist()}
        return {"score": self.score} | dict(zip(_KEYS[1:], (each.tolist() for each in numbers), strict=True)) | prior

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], width: int) -> "Calibration":
        """Read the output of `as_dict` for features of `width` e, and validate it."""
        if set(values) - {_PRIOR} != set(_KEYS):
            raise FedotpError(f"a calibration must have {', '.join(_KEYS)}, got {', '.join(map(str, values))[:80]}")
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
        return cls(conformity, outlying, centre, spread, values["score"], log_prior)


def _numbers(values: Mapping[str, Any], key: str, fewest: int, most: int, low: float, high: float) -> Floats:
    """Read a list of `fewest` to `most` numbers from `low` to `high`."""
    numbers = values[key]
    if not isinstance(numbers, list) or not fewest <= len(numbers) <= most:
        raise FedotpError(f"{key} of a calibration must be a list of {fewest:,} to {most:,} numbers")
    if not all(type(value) in (int, float) and low <= value <= high for value in numbers):
        raise FedotpError(f"{key} of a calibration must be numbers from {low:g} to {high:g}")
    return np.array(numbers, np.float64)
