"""ClientApp."""

from fedotp.flower.client_app import app

__all__ = ["app"]
