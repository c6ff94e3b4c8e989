"""The keys of a federation: who a site is, and who the server is. Nothing here needs Flower."""

from fedotp.flower.keys._certificates import KeyIdentity
from fedotp.flower.keys._make_keys import add_sites, make_keys, remove_site, renew_server
from fedotp.flower.keys._read_keys import ServerKeys, SiteKeys, key_facts, read_server_keys, read_site_keys

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
