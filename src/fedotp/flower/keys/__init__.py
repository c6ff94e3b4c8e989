"""The keys of a federation, which identify the server and the sites. Independent of Flower."""

from fedotp.flower.keys._certificates import KeyIdentity as KeyIdentity
from fedotp.flower.keys._live_keys import ExpiryWarnings as ExpiryWarnings
from fedotp.flower.keys._live_keys import LiveKeys as LiveKeys
from fedotp.flower.keys._make_keys import make_keys as make_keys
from fedotp.flower.keys._make_keys import renew_server as renew_server
from fedotp.flower.keys._make_keys import request_key as request_key
from fedotp.flower.keys._make_keys import revoke_site as revoke_site
from fedotp.flower.keys._make_keys import sign_request as sign_request
from fedotp.flower.keys._read_keys import EXPIRED as EXPIRED
from fedotp.flower.keys._read_keys import REVOKED as REVOKED
from fedotp.flower.keys._read_keys import ServerKeys as ServerKeys
from fedotp.flower.keys._read_keys import SiteKeys as SiteKeys
from fedotp.flower.keys._read_keys import certified_keys as certified_keys
from fedotp.flower.keys._read_keys import digest_of_keys as digest_of_keys
from fedotp.flower.keys._read_keys import key_facts as key_facts
from fedotp.flower.keys._read_keys import key_fingerprint as key_fingerprint
