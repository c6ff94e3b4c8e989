"""How outlying images are: the score of fedotp, and those it was chosen among."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CHOSEN = "look"  # of `fedotp.limits.Calibration.distances`


def _log_sum(logits: Floats) -> Floats:
    most = logits.max(-1)
    sums: Floats = most + np.log(np.exp(logits - most[:, None]).sum(-1))
    return sums


BY_SCORES: dict[str, Callable[[Floats, float], Floats]] = {
    # the largest probability predicted (Hendrycks and Gimpel 2017)
    "probability": lambda scores, scale: -np.exp((scale * scores).max(-1) - _log_sum(scale * scores)),
    # maximum concept matching: the same at a temperature of 1 (Ming et al. 2022)
    "mcm": lambda scores, scale: -np.exp(scores.max(-1) - _log_sum(scores)),
    # the largest cosine; of FedOTP the cost of transport to the nearest class
    "logit": lambda scores, scale: -scores.max(-1),
    # energy (Liu et al. 2020)
    "energy": lambda scores, scale: -_log_sum(scale * scores) / scale,
}
"""From scores (n, K) before the temperature and 1 / temperature to how outlying (n,) images are."""


def mahalanobis(known: Floats, new: Floats) -> Floats:
    """How far looks (n, e) are from those of a site's images (m, e), by all covariances of these, shrunk.

    Lee et al. 2018; Ledoit and Wolf 2004. A bundle would have to hold e / 2 times as many numbers as it does.
    """
    from sklearn.covariance import LedoitWolf  # slow to import

    distances: Floats = LedoitWolf().fit(known).mahalanobis(new)
    return distances


def false_positive_rate(own: Floats, strangers: Floats) -> float:
    """The share of strangers that are taken for own where 95 % of the own images are."""
    return float((strangers <= np.quantile(own, 0.95, method="higher")).mean())
