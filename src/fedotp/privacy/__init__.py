"""Differential privacy: whose presence is hidden, the noise that hides it, the account of what is spent."""

from fedotp.privacy._account import Releases, composed_epsilon, epsilon, noise_for
from fedotp.privacy._clipping import CHUNK, clip_and_add, clipped, clipped_sum, clipped_sums, length, unit_gradients
from fedotp.privacy._mechanism import Chance, Entropy, Mechanism, gaussian, noisy_average
from fedotp.privacy._settings import PrivacySettings, Unit

__all__ = [
    "CHUNK",
    "Chance",
    "Entropy",
    "Mechanism",
    "PrivacySettings",
    "Releases",
    "Unit",
    "clip_and_add",
    "clipped",
    "clipped_sum",
    "clipped_sums",
    "composed_epsilon",
    "epsilon",
    "gaussian",
    "length",
    "noise_for",
    "noisy_average",
    "unit_gradients",
]
