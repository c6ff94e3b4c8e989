"""Keys of one round, masks drawn from them, and sealed letters between two sites. All of it is `cryptography`'s."""

import hashlib
import os
from dataclasses import dataclass, field

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedotp.errors import FedotpError
from fedotp.flower.secure._fixed import Words

KEY_BYTES = 32
_NONCE_BYTES = 12
_DOMAIN = b"fedotp secure aggregation 2: "


@dataclass(frozen=True)
class KeyPair:
    """A key of X25519, made for one round and never written down."""

    private: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate, repr=False)

    @classmethod
    def of(cls, private: bytes) -> "KeyPair":
        """The pair of 32 secret bytes."""
        return cls(X25519PrivateKey.from_private_bytes(private))

    @property
    def public(self) -> bytes:
        """32 bytes for everyone."""
        return self.private.public_key().public_bytes_raw()

    @property
    def secret(self) -> bytes:
        """32 bytes for nobody; shares of them for many."""
        return self.private.private_bytes_raw()

    def agree(self, public: bytes, purpose: bytes) -> bytes:
        """32 bytes that only the owners of the two keys know, other ones for every purpose."""
        try:
            common = self.private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:  # a point of small order, or not 32 bytes
            raise FedotpError("a public key is none: nothing can be agreed on with it") from None
        return derive(common, purpose)


def derive(secret: bytes, purpose: bytes) -> bytes:
    """A key for `purpose`, of a secret that has 256 bits of entropy, or a curve's."""
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=_DOMAIN + purpose).derive(secret)


def mask(key: bytes, n: int) -> Words:
    """(n,) numbers modulo 2^64 that nobody without `key` can tell from chance: AES-256 in counter mode."""
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * n))
    return np.frombuffer(stream, "<u8").astype(np.uint64)


def seal(key: bytes, letter: bytes, about: bytes) -> bytes:
    """Encrypt and authenticate `letter`, and that it is `about` this (AES-256-GCM)."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, letter, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes | None:
    """The letter; None if anything was changed in it, or it is about something else."""
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        return None


def digest(*parts: bytes) -> bytes:
    """SHA-256 of parts, each with its length before it."""
    total = hashlib.sha256(_DOMAIN)
    for part in parts:
        total.update(len(part).to_bytes(8))
        total.update(part)
    return total.digest()
