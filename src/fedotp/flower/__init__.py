"""A real federation on Flower: one SuperLink, one SuperNode per site, the same methods and the same numbers."""

from fedotp.flower._start import LEAST_NOISE as LEAST_NOISE
from fedotp.flower._start import PORT as PORT
from fedotp.flower._start import PRIVACY_DELTA as PRIVACY_DELTA
from fedotp.flower._start import SECURE_SITES as SECURE_SITES
from fedotp.flower._start import SERVER_DAYS as SERVER_DAYS
from fedotp.flower._start import SHARE as SHARE
from fedotp.flower._start import need_flower as need_flower
from fedotp.flower._start import quiet_flower as quiet_flower
