"""A real federation on Flower: one SuperLink, one SuperNode per site, the same methods and the same numbers."""

import os

from fedotp.flower._start import (
    LEAST_NOISE,
    PORT,
    PRIVACY_DELTA,
    SECURE_SITES,
    SERVER_DAYS,
    SHARE,
    need_flower,
    quiet_flower,
)

# Flower reads this when it is imported, which nothing here does before: no telemetry, unless somebody asks for it.
os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ.get("FEDOTP_FLOWER_TELEMETRY", "0")

__all__ = [
    "LEAST_NOISE",
    "PORT",
    "PRIVACY_DELTA",
    "SECURE_SITES",
    "SERVER_DAYS",
    "SHARE",
    "need_flower",
    "quiet_flower",
]
