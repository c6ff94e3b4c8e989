"""What holds where nobody says otherwise; the command line shows it without loading Flower."""

from typing import Literal

Share = Literal["nothing", "loss", "scores", "predictions"]

PORT = 8000
SERVER_DAYS = 825  # that its certificate is valid
SHARE: Share = "scores"
PRIVACY_DELTA = 1e-5
LEAST_NOISE = 0.5  # multiplier
SECURE_SITES = 3  # of a sum of two, each knows the other's part
