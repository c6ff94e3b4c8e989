"""The keys of a federation, which identify the server and the sites. Independent of Flower."""

from fedotp.flower.keys._certificates import KeyIdentity as KeyIdentity
from fedotp.flower.keys._make_keys import add_sites as add_sites
from fedotp.flower.keys._make_keys import make_keys as make_keys
from fedotp.flower.keys._make_keys import remove_site as remove_site
from fedotp.flower.keys._make_keys import renew_server as renew_server
from fedotp.flower.keys._read_keys import ServerKeys as ServerKeys
from fedotp.flower.keys._read_keys import SiteKeys as SiteKeys
from fedotp.flower.keys._read_keys import key_facts as key_facts
