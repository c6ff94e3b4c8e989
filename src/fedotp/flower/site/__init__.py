"""One site of a federation: its images, its private prompt, and what it does for a server, and does not."""

from fedotp.flower.site._app import app, site_of
from fedotp.flower.site._run_site import run_site
from fedotp.flower.site._site import Site, SiteSettings

__all__ = [
    "Site",
    "SiteSettings",
    "app",
    "run_site",
    "site_of",
]
