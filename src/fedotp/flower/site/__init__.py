"""One site of a federation: its images, its private prompt, and what it does for a server, and does not."""

from fedotp.flower.site._app import app as app
from fedotp.flower.site._app import run_site as run_site
from fedotp.flower.site._app import site_of as site_of
from fedotp.flower.site._site import Site as Site
from fedotp.flower.site._site import SiteSettings as SiteSettings
