"""Shamir's secret sharing over a prime field: any t of n shares give the secret, t - 1 say nothing of it.

    f(x) = secret + a_1 x + ... + a_{t-1} x^{t-1}  (mod p),  share of the site at x = 1, 2, ...: f(x)

The secret is 32 bytes; p is the smallest prime above 2^256, so every 32 bytes are a number of the field.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence

from fedotp.errors import FedotpError

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, threshold: int, places: Collection[int]) -> dict[int, bytes]:
    """A share for each of `places` (1, 2, ...), any `threshold` of which give `secret`."""
    coefficients = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {place: _value(coefficients, place).to_bytes(SHARE_BYTES) for place in places}


def combine(shares: Mapping[int, bytes], weights: Sequence[int]) -> bytes:
    """The secret, of the shares at the places that `weights` were made for."""
    values = [int.from_bytes(share) for share in shares.values()]
    secret = sum(weight * value for weight, value in zip(weights, values, strict=True)) % PRIME
    if secret >> (8 * SECRET_BYTES):
        raise FedotpError("the shares do not belong together: what they give is not a secret")
    return secret.to_bytes(SECRET_BYTES)


def weights_at_zero(places: Collection[int]) -> list[int]:
    """Lagrange's weights: f(0) = sum of weight times f(place), for all f of a degree below the number of places."""
    if len(set(places)) < len(places) or not all(0 < place < PRIME for place in places):
        raise FedotpError(f"shares at the places {sorted(places)} cannot be combined; right are different ones from 1")
    weights = []
    for place in places:
        above, below = 1, 1
        for other in places:
            if other != place:
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def _value(coefficients: Sequence[int], place: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * place + coefficient) % PRIME
    return value
