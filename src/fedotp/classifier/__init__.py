"""The trained classifier of a client, from a run or a bundle."""

from fedotp.classifier._bundle import Bundle as Bundle
from fedotp.classifier._bundle import backbone_name as backbone_name
from fedotp.classifier._bundle import has_name as has_name
from fedotp.classifier._bundle import save_calibration as save_calibration
from fedotp.classifier._calibrate import calibrated_by as calibrated_by
from fedotp.classifier._classifier import Classifier as Classifier
from fedotp.classifier._classifier import Origin as Origin
from fedotp.classifier._classifier import looks_of as looks_of
from fedotp.classifier._open import Classifiers as Classifiers
from fedotp.classifier._open import load as load
from fedotp.classifier._open import open_classifiers as open_classifiers
from fedotp.classifier._prediction import Prediction as Prediction
from fedotp.classifier._prior import ClassPrior as ClassPrior
