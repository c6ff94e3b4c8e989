"""ServerApp."""

from fedotp.flower.server_app import app

__all__ = ["app"]
