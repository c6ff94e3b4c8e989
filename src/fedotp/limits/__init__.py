"""Knowing its limits: prediction sets that hold the true class as often as promised, and images unlike a site's own."""

from fedotp.limits._calibration import FLAGGED, Calibration, Look, p_values
from fedotp.limits._conformal import (
    COVERAGES,
    SCORE,
    SCORES,
    Score,
    least_images,
    nonconformity,
    prediction_sets,
    rank,
    require_coverage,
    threshold,
)

__all__ = [
    "COVERAGES",
    "FLAGGED",
    "SCORE",
    "SCORES",
    "Calibration",
    "Look",
    "Score",
    "least_images",
    "nonconformity",
    "p_values",
    "prediction_sets",
    "rank",
    "require_coverage",
    "threshold",
]
