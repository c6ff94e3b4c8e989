"""A site's side of a secure sum: it answers each step once, and forgets everything with the round.

advertise   make two keys; sign the public ones, the session, its weight and where it starts from
share       if all others have signed the same session: deal out shares of its mask key and of the seed of its own mask,
            each sealed for one site
hold        open the shares of others, which only those who know the same cohort can have sealed
mask        train; add to its numbers its own mask, and one with every other site that the other subtracts
endorse     sign who has sent masked numbers
reveal      once enough have signed the same: of each who has, the share of the seed, of each who has not, that of
            the key; never both of one site
"""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from fedotp.errors import FedotpError
from fedotp.flower.keys import KeyIdentity
from fedotp.flower.secure._crypto import SHARE_BYTES, KeyPair, derive, digest, mask, seal, split, unseal
from fedotp.flower.secure._fixed_point import Floats, Words, row_of
from fedotp.flower.secure._session import Advert, Cohort, Session


@dataclass(frozen=True)
class SealedShares:
    """What a site sends of its shares, by receiver: sealed letters, and marks (digests) that identify shares."""

    letters: Mapping[int, bytes]
    marks: Mapping[int, bytes]


class SiteSession:
    """Site `number`, called `name`, in one session."""

    def __init__(
        self, session: Session, number: int, name: str, identity: KeyIdentity, *, n_images: int, accepted: int
    ) -> None:
        """Of a site that has `n_images` images and starts from where it stood after round `accepted`; keys are drawn.

        It counts with all of its images, or as many as the session allows.
        """
        if n_images < 1 or not 0 <= accepted < session.round:
            raise FedotpError(
                f"a secure sum of round {session.round}, from round {accepted} and with {n_images} images; right is an "
                "earlier round, and at least one image"
            )
        self.session, self.number = session, number
        self._identity = identity
        self._letters, self._masks = KeyPair(), KeyPair()
        weight = min(n_images, session.most_images)
        self.advert = Advert(name, self._letters.public, self._masks.public, weight, accepted)
        self._seed = secrets.token_bytes(32)
        self._cohort: Cohort | None = None
        self._dealt: SealedShares | None = None
        self._own_shares = b""
        self._given = b""  # digest of the letters that were opened
        self._held: dict[int, bytes] = {}  # the shares of every site that has dealt, both of each
        self.masked: Words | None = None
        self._survivors: frozenset[int] | None = None

    def advertise(self) -> Advert:
        """The site's public keys, its weight and where it starts from."""
        return replace(
            self.advert, signature=self._identity.sign(self.session.keys_statement(self.number, self.advert))
        )

    def share(self, adverts: Mapping[int, Advert], *, least: int = 0, strong: bool = False) -> SealedShares:
        """Shares for every site of the cohort, which has `least` sites or more and, if asked, a `strong` threshold."""
        cohort = Cohort(self.session, dict(adverts))
        if self._cohort is not None and self._dealt is not None:
            if cohort.transcript != self._cohort.transcript:
                raise FedotpError(
                    "the server named other sites before, in the same secure sum; this site deals no more"
                )
            return self._dealt
        own = cohort.adverts.get(self.number)
        if own is None or own.parts(self.number) != self.advert.parts(self.number):
            raise FedotpError("this site's own keys are not among those of the secure sum")
        if len(cohort.adverts) < least:
            raise FedotpError(f"a secure sum of {len(cohort.adverts)} sites; this one wants {least} or more")
        if strong:
            cohort.require_strong()
        for number, advert in cohort.adverts.items():  # keys that the site did not sign for this session are refused
            self._identity.check(advert.name, self.session.keys_statement(number, advert), advert.signature)
        places = cohort.places.values()
        of_seed = split(self._seed, cohort.threshold, places)
        of_key = split(self._masks.secret, cohort.threshold, places)
        shares = {number: of_seed[place] + of_key[place] for number, place in cohort.places.items()}
        self._own_shares = shares[self.number]
        sealed = {}
        for number, letter in shares.items():
            if number != self.number:
                about = cohort.about(b"letter", self.number, number)
                sealed[number] = seal(self._letters.agree(cohort.adverts[number].letters, about), letter, about)
        marks = {number: marks_of(cohort, self.number, number, letter) for number, letter in shares.items()}
        self._cohort, self._dealt = cohort, SealedShares(sealed, marks)
        return self._dealt

    def hold(self, letters: Mapping[int, bytes]) -> None:
        """Open and keep the shares that others have dealt to this site."""
        cohort = self.cohort
        given = digest(*(part for number in sorted(letters) for part in (str(number).encode(), letters[number])))
        if self._given not in (b"", given):
            raise FedotpError("this site has received other shares in the same secure sum; it masks no more")
        held = {self.number: self._own_shares}
        for number, letter in letters.items():
            if number not in cohort.adverts or number == self.number:
                raise FedotpError(f"a share comes from site {number}, which is none of the other sites of the sum")
            about = cohort.about(b"letter", number, self.number)
            opened = unseal(self._letters.agree(cohort.adverts[number].letters, about), letter, about)
            if opened is None or len(opened) != 2 * SHARE_BYTES:
                name = cohort.adverts[number].name
                raise FedotpError(f"the sealed share of site {name} was changed on its way, or is for another sum")
            held[number] = opened
        cohort.require_enough(held, "have dealt out shares")
        self._held, self._given = held, given

    def encode(self, values: Mapping[str, Floats], *, loss: float | None, n_images: int) -> Words:
        """This site's numbers for the sum: its weight, its loss (None: not shared), the images seen and its values."""
        return row_of(self.cohort.fixed, values, weight=self.advert.weight, loss=loss, n_images=n_images)

    def mask(self, numbers: Words) -> Words:
        """`numbers` under masks that cancel in the sum over the sites whose shares this one holds; once."""
        cohort = self.cohort
        if not self._held or self.masked is not None:
            raise FedotpError("a site masks its numbers once in a secure sum, after it has received all shares")
        masked = numbers + mask(derive(self._seed, cohort.about(b"own", self.number, self.number)), len(numbers))
        for number in self._held:
            if number != self.number:
                masked = add_pair(cohort, masked, self._masks, self.number, number)
        self.masked = masked
        return masked

    def endorse(self, survivors: Collection[int]) -> bytes:
        """This site's signature that it takes `survivors` for those whose masked numbers were added up."""
        cohort, chosen = self.cohort, frozenset(survivors)
        if self.masked is None:
            raise FedotpError("this site has masked nothing yet, and cannot say who is in the sum")
        if self._survivors not in (None, chosen):
            raise FedotpError(
                "the server named other survivors before, in the same secure sum; this site signs no more"
            )
        if self.number not in chosen or not chosen <= self._held.keys():
            raise FedotpError(
                "the survivors of a secure sum must be sites that have dealt out shares, this one among them"
            )
        cohort.require_enough(chosen, "are in the sum")
        self._survivors = chosen
        return self._identity.sign(cohort.survivors_statement(chosen))

    def reveal(self, signatures: Mapping[int, bytes]) -> dict[int, bytes]:
        """One share of each site that has dealt, once enough have signed who is in the sum."""
        cohort = self.cohort
        if self._survivors is None:
            raise FedotpError("this site does not know which sites are in the sum, and reveals no share")
        if not signatures.keys() <= self._survivors:
            raise FedotpError("a site that is not in the sum has signed")
        statement = cohort.survivors_statement(self._survivors)
        for number, signature in signatures.items():
            self._identity.check(cohort.adverts[number].name, statement, signature)
        cohort.require_enough(signatures, "have signed who is in the sum")
        return {
            number: shares[:SHARE_BYTES] if number in self._survivors else shares[SHARE_BYTES:]
            for number, shares in self._held.items()
        }

    @property
    def survivors(self) -> frozenset[int]:
        """Who is in the sum, as this site has signed."""
        return self._survivors or frozenset()

    @property
    def cohort(self) -> Cohort:
        """The sites that this one has dealt out shares to."""
        if self._cohort is None:
            raise FedotpError("this site does not know yet who takes part in the secure sum")
        return self._cohort


def add_pair(cohort: Cohort, numbers: Words, own: KeyPair, number: int, other: int) -> Words:
    """`numbers` of site `number` with the mask it has with `other`: the smaller number adds it, the other subtracts."""
    about = cohort.about(b"pair", min(number, other), max(number, other))
    common = mask(own.agree(cohort.adverts[other].masks, about), len(numbers))
    return numbers + common if number < other else numbers - common


def marks_of(cohort: Cohort, dealer: int, receiver: int, shares: bytes) -> bytes:
    """Two digests, of the share of a seed and of the share of a key, by which a revealed share is checked."""
    about = cohort.about(b"mark", dealer, receiver)
    return mark_of(about, shares[:SHARE_BYTES]) + mark_of(about, shares[SHARE_BYTES:])


def mark_of(about: bytes, share: bytes) -> bytes:
    """32 bytes; a share is as good as random, so nothing can be learned from them."""
    return digest(about, share)
