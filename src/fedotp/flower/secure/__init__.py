"""Secure aggregation: the server learns a sum of what sites send, and no summand. Nothing here needs Flower.

The protocol of Bonawitz et al., Practical secure aggregation for privacy-preserving machine learning, CCS 2017, in the
variant against an active server: sites sign their keys together with what they are asked to do and how much they count,
before anyone trains, and who is in the sum, before anything is opened. Flower's own
parts are not used: its masks come from NumPy's Mersenne twister, seeded with 32 bits, which anyone can try out.
"""

from fedotp.flower.secure._crypto import digest
from fedotp.flower.secure._fixed import Average, FixedPoint, Words, average_of, n_numbers, row_of
from fedotp.flower.secure._server_side import ServerSession
from fedotp.flower.secure._session import (
    LEAST_SITES,
    Advert,
    Circle,
    Identity,
    Session,
    Terms,
    Unsigned,
    VoidSumError,
    pack,
    unpack,
    unpack_names,
    unpack_numbers,
)
from fedotp.flower.secure._site_side import Dealt, SiteSession

__all__ = [
    "LEAST_SITES",
    "Advert",
    "Average",
    "Circle",
    "Dealt",
    "FixedPoint",
    "Identity",
    "ServerSession",
    "Session",
    "SiteSession",
    "Terms",
    "Unsigned",
    "VoidSumError",
    "Words",
    "average_of",
    "digest",
    "n_numbers",
    "pack",
    "row_of",
    "unpack",
    "unpack_names",
    "unpack_numbers",
]
