"""One site of a federation: its images, its private prompt, its limits, and its answers to the server's requests."""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face
from fedotp.flower.site._site_settings import SiteSettings as SiteSettings

if TYPE_CHECKING:
    from fedotp.flower.site._app import run_site as run_site
    from fedotp.flower.site._check import check_site as check_site
    from fedotp.flower.site._policy import read_policy as read_policy

__getattr__, __dir__ = lazy_face(__name__)
