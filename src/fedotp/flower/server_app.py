"""Where Flower finds the ServerApp of a federation."""

from fedotp.flower.server import app

__all__ = ["app"]
