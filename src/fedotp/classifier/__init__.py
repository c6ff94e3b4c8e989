"""Using what was learned: a client's classifier, from a run or from a bundle."""

from fedotp._images import ImageLike, decode_image, open_image
from fedotp.classifier._bundle import backbone_name, has_name, save_bundle, save_calibration
from fedotp.classifier._classifier import Classifier, Origin, looks_of
from fedotp.classifier._onnx import save_onnx
from fedotp.classifier._open import Classifiers, calibrated_by, load, open_classifiers
from fedotp.classifier._prediction import Maps, Prediction
from fedotp.classifier._read_bundle import Bundle

__all__ = [
    "Bundle",
    "Classifier",
    "Classifiers",
    "ImageLike",
    "Maps",
    "Origin",
    "Prediction",
    "backbone_name",
    "calibrated_by",
    "decode_image",
    "has_name",
    "load",
    "looks_of",
    "open_classifiers",
    "open_image",
    "save_bundle",
    "save_calibration",
    "save_onnx",
]
