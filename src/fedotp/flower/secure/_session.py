"""Terms, session and cohort of a secure sum: the facts that all its sites know and sign."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import pairwise

from fedotp.errors import FedotpError
from fedotp.flower._defaults import LEAST_SITES
from fedotp.flower.secure._crypto import KEY_BYTES, digest
from fedotp.flower.secure._fixed_point import FixedPoint

_MOST_SITES, _MOST_BOUND = 10_000, 10**6
_MOST_IMAGES = 10**8  # times a float32, still within float64
_MOST_ROUNDS = 2**32
_COUNT_BYTES = 8


@dataclass(frozen=True)
class Terms:
    """The terms of all secure sums of a federation.

    Attributes:
        share: opening a sum requires more than this share of its sites.
        bound: largest absolute value of a prompt.
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
    """One attempt at a secure sum, which every site signs and compares before it trains.

    Attributes:
        run, round: the run's unique name, and its round from 1.
        attempt: unique identifier, chosen by the server.
        agreement: digest of the whole agreement.
        prompt: digest of the shared parameters that every site receives.
        share, bound: see Terms.
        most_images: the maximum weight of a site.
    """

    run: str
    round: int
    attempt: str
    agreement: str
    prompt: str
    share: float
    bound: int
    most_images: int

    def __post_init__(self) -> None:
        Terms(self.share, self.bound)
        if not 1 <= self.round < _MOST_ROUNDS:
            raise FedotpError(f"the round of a secure sum must be from 1 to {_MOST_ROUNDS - 1}, got {self.round}")
        if not 1 <= (n := self.most_images) <= _MOST_IMAGES:
            raise FedotpError(f"--max-images must be from 1 to {_MOST_IMAGES} in secure sums, got {n}")

    @property
    def terms(self) -> Terms:
        """The agreed terms."""
        return Terms(self.share, self.bound)

    @property
    def text(self) -> str:
        """The session as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, text: str) -> "Session":
        """Read a session from untrusted text."""
        kinds = {item.name: item.type for item in fields(cls)}
        try:
            values = json.loads(text)
            is_valid = isinstance(values, dict) and {name: type(value) for name, value in values.items()} == kinds
        except (ValueError, RecursionError):
            is_valid = False
        if not is_valid or len(text) > 1000:
            raise FedotpError("the message contains no valid secure sum; install the same version of fedotp")
        return cls(**values)

    def keys_statement(self, number: int, advert: "Advert") -> bytes:
        """Return the statement that a site signs before it trains."""
        return digest(b"keys", self.text.encode(), *advert.parts(number))


@dataclass(frozen=True)
class Advert:
    """A site's signed keys, weight and starting point in one session.

    Attributes:
        name: the site's name.
        letters, masks: its public keys for letters and for masks.
        weight: its weight in images.
        accepted: the round whose private parameters it starts from; 0 for the initial ones.
        signature: of `Session.keys_statement`.
    """

    name: str
    letters: bytes
    masks: bytes
    weight: int
    accepted: int
    signature: bytes = b""

    @property
    def keys(self) -> bytes:
        """Both keys: 64 bytes."""
        return self.letters + self.masks

    @property
    def counts(self) -> bytes:
        """Weight and accepted round: 16 bytes."""
        return self.weight.to_bytes(_COUNT_BYTES) + self.accepted.to_bytes(_COUNT_BYTES)

    def parts(self, number: int) -> tuple[bytes, ...]:
        """Return all facts about site `number` except the signature."""
        return str(number).encode(), self.name.encode(), self.keys, self.counts

    @classmethod
    def of(cls, name: str, content: bytes) -> "Advert":
        """Read untrusted `content`."""
        ends = (0, KEY_BYTES, 2 * KEY_BYTES, 2 * KEY_BYTES + _COUNT_BYTES, 2 * KEY_BYTES + 2 * _COUNT_BYTES)
        if not ends[-1] <= len(content) <= 1000:
            raise FedotpError(f"the keys of site {name} have an invalid length of {len(content)} bytes")
        letters, masks, weight, accepted = (content[start:end] for start, end in pairwise(ends))
        return cls(name, letters, masks, int.from_bytes(weight), int.from_bytes(accepted), content[ends[-1] :])

    @property
    def content(self) -> bytes:
        """Keys, counts and signature."""
        return self.keys + self.counts + self.signature


@dataclass(frozen=True)
class Cohort:
    """The sites of one session, by number; the sum can be opened only if it is equal at all of them."""

    session: Session
    adverts: Mapping[int, Advert]

    def __post_init__(self) -> None:
        if not LEAST_SITES <= len(self.adverts) <= _MOST_SITES:
            raise FedotpError(
                f"a secure sum requires {LEAST_SITES} to {_MOST_SITES} sites, got {len(self.adverts)}: in a sum of "
                "two, each site can compute the other's update"
            )
        keys, names = ({getattr(each, key) for each in self.adverts.values()} for key in ("keys", "name"))
        if min(len(keys), len(names)) < len(self.adverts):
            raise FedotpError("sites of a secure sum must have unique names and keys")
        most = self.session.most_images
        for advert in self.adverts.values():
            if not 1 <= advert.weight <= most:
                raise FedotpError(f"weight of site {advert.name}: must be from 1 to {most} images, got {advert.weight}")

    @cached_property
    def numbers(self) -> list[int]:
        """The sites' numbers, in order."""
        return sorted(self.adverts)

    @cached_property
    def threshold(self) -> int:
        """The smallest number of sites that can open the sum."""
        return max(LEAST_SITES, math.floor(self.session.share * len(self.adverts)) + 1)

    @cached_property
    def fixed(self) -> FixedPoint:
        """The number format."""
        return FixedPoint(len(self.adverts), self.session.most_images, self.session.bound)

    @cached_property
    def transcript(self) -> bytes:
        """A digest of the session and all adverts: 32 bytes."""
        parts = [part for number in self.numbers for part in self.adverts[number].parts(number)]
        return digest(b"cohort", self.session.text.encode(), *parts)

    @cached_property
    def places(self) -> dict[int, int]:
        """The sites' places on the polynomial, by number: 1, 2, ..."""
        return {number: place for place, number in enumerate(self.numbers, 1)}

    def members(self, numbers: Collection[int]) -> frozenset[tuple[str, int, int, int]]:
        """Identify the sites `numbers`: names, numbers, weights, accepted rounds; equal for equal sums."""
        adverts = {number: self.adverts[number] for number in numbers if number in self.adverts}
        return frozenset((each.name, number, each.weight, each.accepted) for number, each in adverts.items())

    def survivors_statement(self, survivors: Collection[int]) -> bytes:
        """Return the statement that a site signs about the survivors."""
        return digest(b"survivors", self.transcript, " ".join(map(str, sorted(survivors))).encode())

    def require_enough(self, numbers: Collection[int], what: str) -> None:
        """Raise VoidSumError if fewer sites than the threshold have completed a step."""
        if len(numbers) < self.threshold:
            raise VoidSumError(f"only {len(numbers)} of {len(self.adverts)} sites {what}, need {self.threshold}")

    def about(self, purpose: bytes, sender: int, receiver: int) -> bytes:
        """Return the purpose of a key or letter, as associated data."""
        return digest(purpose, self.transcript, str(sender).encode(), str(receiver).encode())


class VoidSumError(FedotpError):
    """Raised if the sum cannot be opened, because too few sites are left or answers are inconsistent; retried."""
