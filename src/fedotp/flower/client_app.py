"""Where Flower finds the ClientApp of a site."""

from fedotp.flower.site import app, site_of

__all__ = ["app", "site_of"]
