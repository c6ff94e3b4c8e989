"""What all sites of one secure sum know, and what they sign."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Protocol

from fedotp.errors import FedotpError
from fedotp.flower._defaults import SECURE_SITES
from fedotp.flower.secure._crypto import KEY_BYTES, digest
from fedotp.flower.secure._fixed import FixedPoint

LEAST_SITES = SECURE_SITES

_MOST_SITES, _MOST_BOUND = 10_000, 10**6
_MOST_IMAGES = 10**8  # times a float32, a number that a float64 still holds


class Identity(Protocol):
    """Who signs, and whose signatures can be told."""

    def sign(self, statement: bytes) -> bytes:
        """This party's signature."""

    def check(self, name: str, statement: bytes, signature: bytes) -> None:
        """Refuse a signature that is not that of the site called `name`."""


class Unsigned:
    """An identity that proves nothing: sites without keys, on one machine."""

    def sign(self, statement: bytes) -> bytes:
        """Nothing."""
        return b""

    def check(self, name: str, statement: bytes, signature: bytes) -> None:
        """Believe it."""


@dataclass(frozen=True)
class Terms:
    """What a federation agrees on for all its secure sums.

    Attributes:
        share: a sum is opened by more than this share of its sites.
        bound: no value of a prompt is larger.
    """

    share: float
    bound: int

    def __post_init__(self) -> None:
        if not (type(self.share) is float and 0.5 <= self.share < 1):
            raise FedotpError(f"secure-threshold = {self.share!r}: must be from 0.5 to less than 1, for example 0.67")
        if not (type(self.bound) is int and 1 <= self.bound <= _MOST_BOUND):
            raise FedotpError(f"secure-range = {self.bound!r}: must be from 1 to {_MOST_BOUND}, for example 64")


@dataclass(frozen=True)
class Session:
    """One attempt at a secure sum.

    Attributes:
        run, round: the run's own name, and its round from 1.
        attempt: chosen by the server, another one each time.
        share, bound: see Terms.
        most_images: no site counts with more.
    """

    run: str
    round: int
    attempt: str
    share: float
    bound: int
    most_images: int

    def __post_init__(self) -> None:
        Terms(self.share, self.bound)
        if not 1 <= self.most_images <= _MOST_IMAGES:
            raise FedotpError(
                f"a secure sum in which a site counts with up to {self.most_images} images; right is up to "
                f"{_MOST_IMAGES} (--max-images)"
            )

    @property
    def terms(self) -> Terms:
        """What was agreed on."""
        return Terms(self.share, self.bound)

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, text: str) -> "Session":
        """Read what a stranger has written."""
        kinds = {"run": str, "round": int, "attempt": str, "share": float, "most_images": int, "bound": int}
        try:
            values = json.loads(text)
            right = isinstance(values, dict) and {name: type(value) for name, value in values.items()} == kinds
        except (ValueError, RecursionError):
            right = False
        if not right or len(text) > 1000:
            raise FedotpError("the message says nothing right of a secure sum; install the same version of fedotp")
        return cls(**values)

    def keys_statement(self, number: int, name: str, keys: bytes) -> bytes:
        """What a site signs of its keys."""
        return digest(b"keys", self.text.encode(), str(number).encode(), name.encode(), keys)


@dataclass(frozen=True)
class Advert:
    """A site's public keys of one session: one for letters, one for masks; signed."""

    name: str
    letters: bytes
    masks: bytes
    signature: bytes

    @property
    def keys(self) -> bytes:
        """Both keys: 64 bytes."""
        return self.letters + self.masks

    @classmethod
    def of(cls, name: str, content: bytes) -> "Advert":
        """Of `content`, a stranger's."""
        if not 2 * KEY_BYTES <= len(content) <= 1000:
            raise FedotpError(f"the keys of {name} have {len(content)} bytes; right are two keys and a signature")
        return cls(name, content[:KEY_BYTES], content[KEY_BYTES : 2 * KEY_BYTES], content[2 * KEY_BYTES :])

    @property
    def content(self) -> bytes:
        """Keys and signature."""
        return self.keys + self.signature


@dataclass(frozen=True)
class Circle:
    """The sites whose keys were put together for one session, by number; equal at all of them, or nothing fits."""

    session: Session
    adverts: Mapping[int, Advert]

    def __post_init__(self) -> None:
        if not LEAST_SITES <= len(self.adverts) <= _MOST_SITES:
            raise FedotpError(
                f"a secure sum of {len(self.adverts)} sites: right is from {LEAST_SITES} to {_MOST_SITES}; "
                "of two, each would know the other's part"
            )
        if len({advert.keys for advert in self.adverts.values()}) < len(self.adverts) or len(
            {advert.name for advert in self.adverts.values()}
        ) < len(self.adverts):
            raise FedotpError(
                "two sites of the secure sum have the same name or the same keys; right are different ones"
            )

    @cached_property
    def numbers(self) -> list[int]:
        """The sites' numbers, in order."""
        return sorted(self.adverts)

    @cached_property
    def threshold(self) -> int:
        """So many sites open the sum, and fewer cannot."""
        return max(LEAST_SITES, math.floor(self.session.share * len(self.adverts)) + 1)

    @cached_property
    def fixed(self) -> FixedPoint:
        """How numbers are written."""
        return FixedPoint(len(self.adverts), self.session.most_images, self.session.bound)

    @cached_property
    def transcript(self) -> bytes:
        """32 bytes that stand for all of it: other ones if a single site was told anything else."""
        told = [
            part
            for number in self.numbers
            for part in (str(number).encode(), self.adverts[number].name.encode(), self.adverts[number].keys)
        ]
        return digest(b"circle", self.session.text.encode(), *told)

    @cached_property
    def places(self) -> dict[int, int]:
        """The sites' places on the polynomial, by number: 1, 2, ..."""
        return {number: place for place, number in enumerate(self.numbers, 1)}

    def check_names(self, identity: Identity) -> None:
        """Refuse keys that a site did not sign."""
        for number, advert in self.adverts.items():
            statement = self.session.keys_statement(number, advert.name, advert.keys)
            identity.check(advert.name, statement, advert.signature)

    def survivors_statement(self, survivors: Collection[int]) -> bytes:
        """What a site signs of who is in the sum."""
        return digest(b"survivors", self.transcript, " ".join(map(str, sorted(survivors))).encode())

    def require_enough(self, numbers: Collection[int], what: str) -> None:
        """Refuse a step that fewer than the threshold have come through."""
        if len(numbers) < self.threshold:
            raise VoidSumError(
                f"{len(numbers)} of {len(self.adverts)} sites {what}; a secure sum needs {self.threshold}"
            )

    def about(self, purpose: bytes, sender: int, receiver: int) -> bytes:
        """What a key or a letter is for."""
        return digest(purpose, self.transcript, str(sender).encode(), str(receiver).encode())


class VoidSumError(FedotpError):
    """The sum cannot be opened, because too few sites are left or what they say does not fit; it is made again."""
