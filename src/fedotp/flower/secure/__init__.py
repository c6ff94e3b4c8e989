"""Secure aggregation: the server learns only the sum of the sites' updates. Independent of Flower.

The protocol of Bonawitz et al., Practical secure aggregation for privacy-preserving machine learning, CCS 2017, in the
variant against an active server. Before training, all sites sign their keys, the request and their weights; before the
sum is opened, they sign which sites are in it. Flower's own implementation is insecure: it draws masks from NumPy's
Mersenne twister with a 32-bit seed, which can be guessed.
"""

from fedotp.flower.secure._crypto import digest as digest
from fedotp.flower.secure._fixed_point import Average as Average
from fedotp.flower.secure._server_side import ServerSession as ServerSession
from fedotp.flower.secure._session import Advert as Advert
from fedotp.flower.secure._session import Session as Session
from fedotp.flower.secure._session import Terms as Terms
from fedotp.flower.secure._session import VoidSumError as VoidSumError
from fedotp.flower.secure._site_side import SealedShares as SealedShares
from fedotp.flower.secure._site_side import SiteSession as SiteSession
