"""Keys and masks of one round, encrypted letters between two sites (all from `cryptography`), and secret sharing.

Shamir's secret sharing over a prime field: any t of n shares determine the secret, t - 1 reveal nothing about it.

    f(x) = secret + a_1 x + ... + a_{t-1} x^{t-1}  (mod p),  share of the site at x = 1, 2, ...: f(x)

The secret has 32 bytes; p is the smallest prime above 2^256, so that any 32 bytes are a field element.
"""

import hashlib
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedotp.errors import FedotpError
from fedotp.flower.secure._fixed_point import Words

KEY_BYTES = 32
_NONCE_BYTES = 12
_DOMAIN = b"fedotp secure aggregation 2: "


@dataclass(frozen=True)
class KeyPair:
    """An X25519 key pair for one round, never stored on disk."""

    private: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate, repr=False)

    @classmethod
    def of(cls, private: bytes) -> "KeyPair":
        """Make the pair of a 32-byte secret key."""
        return cls(X25519PrivateKey.from_private_bytes(private))

    @property
    def public(self) -> bytes:
        """The public key: 32 bytes."""
        return self.private.public_key().public_bytes_raw()

    @property
    def secret(self) -> bytes:
        """The secret key: 32 bytes, of which only shares are sent."""
        return self.private.private_bytes_raw()

    def agree(self, public: bytes, purpose: bytes) -> bytes:
        """Derive 32 bytes per purpose that only the owners of both keys know."""
        try:
            common = self.private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:  # a point of small order, or not 32 bytes
            raise FedotpError("invalid public key of a site") from None
        return derive(common, purpose)


def derive(secret: bytes, purpose: bytes) -> bytes:
    """Derive a key for `purpose` from a secret with 256 bits of entropy, or a shared curve point."""
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=_DOMAIN + purpose).derive(secret)


def mask(key: bytes, n: int) -> Words:
    """Generate (n,) pseudorandom numbers modulo 2^64 from `key`: AES-256 in counter mode."""
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * n))
    return np.frombuffer(stream, "<u8").astype(np.uint64)


def seal(key: bytes, letter: bytes, about: bytes) -> bytes:
    """Encrypt and authenticate `letter`, with the associated data `about` (AES-256-GCM)."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, letter, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes | None:
    """Decrypt a letter; None if it was modified, or `about` differs."""
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        return None


def digest(*parts: bytes) -> bytes:
    """Compute SHA-256 of parts, each prefixed with its length."""
    total = hashlib.sha256(_DOMAIN)
    for part in parts:
        total.update(len(part).to_bytes(8))
        total.update(part)
    return total.digest()


PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, threshold: int, places: Collection[int]) -> dict[int, bytes]:
    """Make a share for each of `places` (1, 2, ...), any `threshold` of which determine `secret`."""
    coefficients = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {place: _value(coefficients, place).to_bytes(SHARE_BYTES) for place in places}


def combine(shares: Mapping[int, bytes], weights: Sequence[int]) -> bytes:
    """Reconstruct the secret from shares, by the `weights` of their places."""
    values = [int.from_bytes(share) for share in shares.values()]
    secret = sum(weight * value for weight, value in zip(weights, values, strict=True)) % PRIME
    if secret >> (8 * SECRET_BYTES):
        raise FedotpError("the shares do not belong to the same secret")
    return secret.to_bytes(SECRET_BYTES)


def weights_at_zero(places: Collection[int]) -> list[int]:
    """Compute Lagrange weights: f(0) = sum of weight times f(place), for f of a degree below the number of places."""
    if len(set(places)) < len(places) or not all(0 < place < PRIME for place in places):
        raise FedotpError(f"places of shares must be distinct and at least 1, got {sorted(places)}")
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
