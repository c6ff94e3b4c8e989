"""Limits of a classifier: prediction sets with guaranteed coverage, and detection of images unlike a site's own."""

from fedotp.limits._calibration import FLAGGED as FLAGGED
from fedotp.limits._calibration import Calibration as Calibration
from fedotp.limits._conformal import COVERAGES as COVERAGES
from fedotp.limits._conformal import SCORE as SCORE
from fedotp.limits._conformal import Score as Score
from fedotp.limits._conformal import least_images as least_images
from fedotp.limits._conformal import prediction_sets as prediction_sets
from fedotp.limits._conformal import require_coverage as require_coverage
from fedotp.limits._conformal import threshold as threshold
