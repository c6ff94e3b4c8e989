"""What all sites of one secure sum know, what they sign, and bytes by a site's number as they travel."""

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
_MOST_IMAGES = 10**8  # times a float32, a number that a float64 still holds
_MOST_ROUNDS = 2**32
_COUNT_BYTES = 8


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
    """One attempt at a secure sum: what every site of it signs and compares before it trains.

    Attributes:
        run, round: the run's own name, and its round from 1.
        attempt: chosen by the server, another one each time.
        agreement: digest of the whole agreement.
        prompt: digest of the shared parameters that every site starts from.
        share, bound: see Terms.
        most_images: no site counts with more.
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
            raise FedotpError(f"a secure sum of round {self.round}; right is from 1 to {_MOST_ROUNDS - 1}")
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
        """Read a session from untrusted text."""
        kinds = {item.name: item.type for item in fields(cls)}
        try:
            values = json.loads(text)
            right = isinstance(values, dict) and {name: type(value) for name, value in values.items()} == kinds
        except (ValueError, RecursionError):
            right = False
        if not right or len(text) > 1000:
            raise FedotpError("the message does not describe a secure sum; install the same version of fedotp")
        return cls(**values)

    def keys_statement(self, number: int, advert: "Advert") -> bytes:
        """What a site signs before it trains."""
        return digest(b"keys", self.text.encode(), *advert.parts(number))


@dataclass(frozen=True)
class Advert:
    """A site's signed keys, weight and start in one session.

    Attributes:
        name: the site's name.
        letters, masks: its public keys, one for letters and one for masks.
        weight: with how many images it counts in the sum.
        accepted: the round after which it stood where it starts from; 0 for the beginning.
        signature: the site's, see `Session.keys_statement`.
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
        """All that is said of site `number`, without the signature."""
        return str(number).encode(), self.name.encode(), self.keys, self.counts

    @classmethod
    def of(cls, name: str, content: bytes) -> "Advert":
        """Read untrusted `content`."""
        ends = (0, KEY_BYTES, 2 * KEY_BYTES, 2 * KEY_BYTES + _COUNT_BYTES, 2 * KEY_BYTES + 2 * _COUNT_BYTES)
        if not ends[-1] <= len(content) <= 1000:
            raise FedotpError(
                f"the keys of {name} have {len(content)} bytes; right are two keys, two counts and a signature"
            )
        letters, masks, weight, accepted = (content[start:end] for start, end in pairwise(ends))
        return cls(name, letters, masks, int.from_bytes(weight), int.from_bytes(accepted), content[ends[-1] :])

    @property
    def content(self) -> bytes:
        """Keys, counts and signature."""
        return self.keys + self.counts + self.signature


@dataclass(frozen=True)
class Cohort:
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
        for advert in self.adverts.values():
            if not 1 <= advert.weight <= self.session.most_images:
                raise FedotpError(
                    f"site {advert.name} counts with {advert.weight} images in the secure sum; right is from 1 to "
                    f"{self.session.most_images}"
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
        """32 bytes that stand for all of it: other ones if a single site has received anything else."""
        parts = [part for number in self.numbers for part in self.adverts[number].parts(number)]
        return digest(b"cohort", self.session.text.encode(), *parts)

    @cached_property
    def places(self) -> dict[int, int]:
        """The sites' places on the polynomial, by number: 1, 2, ..."""
        return {number: place for place, number in enumerate(self.numbers, 1)}

    def require_strong(self) -> None:
        """Refuse a threshold at which a server and a third of the sites could have two lists of survivors signed."""
        least = 2 * len(self.adverts) // 3 + 1
        if self.threshold < least:
            raise FedotpError(
                f"{self.threshold} of {len(self.adverts)} sites would open the secure sum; this one wants {least} "
                "(--require-secure); raise --secure-threshold"
            )

    def members(self, numbers: Collection[int]) -> frozenset[tuple[str, int, int, int]]:
        """Who `numbers` are: names, numbers, weights, and where each starts from; equal sums have equal ones."""
        adverts = {number: self.adverts[number] for number in numbers if number in self.adverts}
        return frozenset((each.name, number, each.weight, each.accepted) for number, each in adverts.items())

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
