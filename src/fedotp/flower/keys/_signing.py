"""Signatures by which sites know each other's words, whoever carries them."""

from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedotp.errors import FedotpError
from fedotp.flower.keys._certificates import load_key

_HOW = ec.ECDSA(hashes.SHA384())


class KeyIdentity:
    """Signs with the private key in a file, and knows others by their public keys."""

    def __init__(self, key: Path | None, peers: Mapping[str, str] | None) -> None:
        """Without `key` it signs nothing; without `peers`, public keys by name, it believes everyone."""
        self._key = key
        self._peers = peers

    def sign(self, statement: bytes) -> bytes:
        """ECDSA on P-384 with SHA-384, as the site's requests are signed."""
        return b"" if self._key is None else load_key(self._key).sign(statement, _HOW)

    def check(self, name: str, statement: bytes, signature: bytes) -> None:
        """Refuse a signature that was not made with the key of the site called `name`."""
        if self._peers is None:
            return
        if name not in self._peers:
            raise FedotpError(f"the key of site {name!r} is not known here; have the coordinator send a new peers.toml")
        public = serialization.load_ssh_public_key(self._peers[name].encode())
        try:
            assert isinstance(public, ec.EllipticCurvePublicKey)  # as every key that was read from such a file
            public.verify(signature, statement, _HOW)
        except InvalidSignature:
            raise FedotpError(f"what is said to come from site {name!r} was not signed with its key") from None
