"""The keys of a federation: who a site is, and who the server is. Nothing here needs Flower."""

from fedotp.flower.keys._facts import key_facts
from fedotp.flower.keys._keys import (
    ServerKeys,
    SiteKeys,
    add_sites,
    make_keys,
    read_server_keys,
    read_site_keys,
    remove_site,
    renew_server,
)
from fedotp.flower.keys._signing import KeyIdentity

__all__ = [
    "KeyIdentity",
    "ServerKeys",
    "SiteKeys",
    "add_sites",
    "key_facts",
    "make_keys",
    "read_server_keys",
    "read_site_keys",
    "remove_site",
    "renew_server",
]
