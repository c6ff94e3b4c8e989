"""Differential privacy: settings, clipping, noise, the accountant, and canaries for audits."""

from fedotp.privacy._account import Releases as Releases
from fedotp.privacy._account import composed_epsilon as composed_epsilon
from fedotp.privacy._account import epsilon as epsilon
from fedotp.privacy._account import noise_for as noise_for
from fedotp.privacy._canaries import Canaries as Canaries
from fedotp.privacy._clipping import clipped as clipped
from fedotp.privacy._clipping import clipped_sums as clipped_sums
from fedotp.privacy._clipping import length as length
from fedotp.privacy._mechanism import Chance as Chance
from fedotp.privacy._mechanism import Entropy as Entropy
from fedotp.privacy._mechanism import Mechanism as Mechanism
from fedotp.privacy._mechanism import noisy_average as noisy_average
from fedotp.privacy._settings import PrivacySettings as PrivacySettings
