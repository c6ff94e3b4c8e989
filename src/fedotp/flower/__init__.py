"""Federations of real sites on Flower: one SuperLink, one SuperNode per site, the same methods and results."""

import os

from fedotp.flower._defaults import PORT as PORT
from fedotp.flower._defaults import SERVER_DAYS as SERVER_DAYS
from fedotp.flower._defaults import SITE_DAYS as SITE_DAYS
from fedotp.flower._defaults import need_flower as need_flower

# Flower reads this variable on import, and this file is imported first: no telemetry by default.
os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ.get("FEDOTP_FLOWER_TELEMETRY", "0")
