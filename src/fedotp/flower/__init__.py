"""A real federation on Flower: one SuperLink, one SuperNode per site, the same methods and the same numbers."""

import os

# Flower reads this when it is imported, which nothing here does before: no telemetry, unless somebody asks for it.
os.environ["FLWR_TELEMETRY_ENABLED"] = os.environ.get("FEDOTP_FLOWER_TELEMETRY", "0")
