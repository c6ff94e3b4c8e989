"""A real federation on Flower: one SuperLink, one SuperNode per site, the same methods and the same numbers."""

import os

from fedotp.flower._defaults import LEAST_NOISE as LEAST_NOISE
from fedotp.flower._defaults import PORT as PORT
from fedotp.flower._defaults import PRIVACY_DELTA as PRIVACY_DELTA
from fedotp.flower._defaults import SECURE_SITES as SECURE_SITES
from fedotp.flower._defaults import SERVER_DAYS as SERVER_DAYS
from fedotp.flower._defaults import SHARE as SHARE
from fedotp.flower._defaults import need_flower as need_flower
from fedotp.flower._defaults import quiet_flower as quiet_flower

# Flower reads this variable when it is imported, and this file is imported first: no telemetry unless the user asks.
os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ.get("FEDOTP_FLOWER_TELEMETRY", "0")
