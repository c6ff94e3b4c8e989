"""Secure aggregation: the server learns a sum of what sites send, and no summand. Nothing here needs Flower.

The protocol of Bonawitz et al., Practical secure aggregation for privacy-preserving machine learning, CCS 2017, in the
variant against an active server: sites sign their keys together with what they are asked to do and how much they count,
before anyone trains, and who is in the sum, before anything is opened. Flower's own
parts are not used: its masks come from NumPy's Mersenne twister, seeded with 32 bits, which anyone can try out.
"""

from fedotp.flower.secure._crypto import digest as digest
from fedotp.flower.secure._fixed_point import Average as Average
from fedotp.flower.secure._fixed_point import FixedPoint as FixedPoint
from fedotp.flower.secure._fixed_point import Words as Words
from fedotp.flower.secure._fixed_point import average_of as average_of
from fedotp.flower.secure._fixed_point import n_numbers as n_numbers
from fedotp.flower.secure._fixed_point import row_of as row_of
from fedotp.flower.secure._server_side import ServerSession as ServerSession
from fedotp.flower.secure._session import LEAST_SITES as LEAST_SITES
from fedotp.flower.secure._session import Advert as Advert
from fedotp.flower.secure._session import Cohort as Cohort
from fedotp.flower.secure._session import Identity as Identity
from fedotp.flower.secure._session import Session as Session
from fedotp.flower.secure._session import Terms as Terms
from fedotp.flower.secure._session import Unsigned as Unsigned
from fedotp.flower.secure._session import VoidSumError as VoidSumError
from fedotp.flower.secure._session import pack as pack
from fedotp.flower.secure._session import unpack as unpack
from fedotp.flower.secure._session import unpack_names as unpack_names
from fedotp.flower.secure._session import unpack_numbers as unpack_numbers
from fedotp.flower.secure._site_side import SealedShares as SealedShares
from fedotp.flower.secure._site_side import SiteSession as SiteSession
