"""A site's side of a secure sum: it answers each step once, and discards everything after the round.

advertise   make two keys; sign the public keys, the session, its weight and its accepted round
share       if all others have signed the same session: send shares of its mask key and of the seed of its own mask,
            each encrypted for one site
hold        decrypt the shares of others, which prove that they know the same cohort
mask        train; add to its values its own mask, and one with every other site that the other subtracts
endorse     sign the list of sites that have sent masked values
reveal      once enough sites have signed the same list: for sites in it the share of the seed, for others that of the
            key; never both of one site
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
    """A site's shares, by receiver: sealed letters, and marks (digests) that identify the shares."""

    letters: Mapping[int, bytes]
    marks: Mapping[int, bytes]


class SiteSession:
    """Site `number`, with the name `name`, in one session."""

    def __init__(
        self, session: Session, number: int, name: str, identity: KeyIdentity, *, n_images: int, accepted: int
    ) -> None:
        """Draw keys for a site with `n_images` images that starts from its parameters after round `accepted`.

        Its weight is `n_images`, or less if the session limits it.
        """
        if n_images < 1:
            raise FedotpError("a secure sum requires at least one training image at each site")
        if not 0 <= accepted < session.round:
            raise FedotpError(f"the accepted round must be below the current round {session.round}, got {accepted}")
        self.session, self.number = session, number
        self._identity = identity
        self._letters, self._masks = KeyPair(), KeyPair()
        weight = min(n_images, session.most_images)
        self.advert = Advert(name, self._letters.public, self._masks.public, weight, accepted)
        self._seed = secrets.token_bytes(32)
        self._cohort: Cohort | None = None
        self._dealt: SealedShares | None = None
        self._own_shares = b""
        self._given = b""  # digest of the decrypted letters
        self._held: dict[int, bytes] = {}  # both shares of every dealer
        self.masked: Words | None = None
        self._survivors: frozenset[int] | None = None

    def advertise(self) -> Advert:
        """Return the site's signed public keys, weight and accepted round."""
        statement = self.session.keys_statement(self.number, self.advert)
        return replace(self.advert, signature=self._identity.sign(statement))

    def share(self, adverts: Mapping[int, Advert]) -> SealedShares:
        """Make shares for the cohort."""
        cohort = Cohort(self.session, dict(adverts))
        if self._cohort is not None and self._dealt is not None:
            if cohort.transcript != self._cohort.transcript:
                raise FedotpError("the server sent two different lists of sites for the same secure sum")
            return self._dealt
        own = cohort.adverts.get(self.number)
        if own is None or own.parts(self.number) != self.advert.parts(self.number):
            raise FedotpError("the secure sum does not contain this site's own keys")
        for number, advert in cohort.adverts.items():  # raises for keys not signed for this session
            try:
                self._identity.check(advert.name, self.session.keys_statement(number, advert), advert.signature)
            except FedotpError as error:
                raise FedotpError(
                    f"{error}; if its key was replaced, this site needs the new peers.crt and a restart"
                ) from None
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
        """Decrypt and store the other sites' shares."""
        cohort = self.cohort
        given = digest(*(part for number in sorted(letters) for part in (str(number).encode(), letters[number])))
        if self._given not in (b"", given):
            raise FedotpError("the server sent two different sets of shares in the same secure sum")
        held = {self.number: self._own_shares}
        for number, letter in letters.items():
            if number not in cohort.adverts or number == self.number:
                raise FedotpError(f"got a share from site {number}, which is not a peer in the secure sum")
            about = cohort.about(b"letter", number, self.number)
            opened = unseal(self._letters.agree(cohort.adverts[number].letters, about), letter, about)
            if opened is None or len(opened) != 2 * SHARE_BYTES:
                name = cohort.adverts[number].name
                raise FedotpError(f"cannot decrypt the share of site {name}: it was modified, or is for another sum")
            held[number] = opened
        cohort.require_enough(held, "sent shares")
        self._held, self._given = held, given

    def encode(self, values: Mapping[str, Floats], *, loss: float | None, n_images: int) -> Words:
        """Encode this site's weight, loss (None: not shared), images seen and values for the sum."""
        return row_of(self.cohort.fixed, values, weight=self.advert.weight, loss=loss, n_images=n_images)

    def mask(self, numbers: Words) -> Words:
        """Mask `numbers`, once; the masks cancel in the sum over the sites whose shares this one has received."""
        cohort = self.cohort
        if not self._held or self.masked is not None:
            raise FedotpError("a site must mask its values once in a secure sum, after it has received all shares")
        masked = numbers + mask(derive(self._seed, cohort.about(b"own", self.number, self.number)), len(numbers))
        for number in self._held:
            if number != self.number:
                masked = add_pair(cohort, masked, self._masks, self.number, number)
        self.masked = masked
        return masked

    def endorse(self, survivors: Collection[int]) -> bytes:
        """Sign the list of `survivors`, the sites whose masked values were added up."""
        cohort, chosen = self.cohort, frozenset(survivors)
        if self.masked is None:
            raise FedotpError("cannot sign the list of survivors before this site has sent masked values")
        if self._survivors not in (None, chosen):
            raise FedotpError("the server sent two different lists of survivors in the same secure sum")
        if self.number not in chosen or not chosen <= self._held.keys():
            raise FedotpError("survivors of a secure sum must have sent shares, and must include this site")
        cohort.require_enough(chosen, "are in the secure sum")
        self._survivors = chosen
        return self._identity.sign(cohort.survivors_statement(chosen))

    def reveal(self, signatures: Mapping[int, bytes]) -> dict[int, bytes]:
        """Reveal one share of each dealer, once enough sites have signed the list of survivors."""
        cohort = self.cohort
        if self._survivors is None:
            raise FedotpError("cannot reveal shares before this site has signed the list of survivors")
        if not signatures.keys() <= self._survivors:
            raise FedotpError("the list of survivors is signed by a site that is not in it")
        statement = cohort.survivors_statement(self._survivors)
        for number, signature in signatures.items():
            self._identity.check(cohort.adverts[number].name, statement, signature)
        cohort.require_enough(signatures, "signed the list of survivors")
        return {
            number: shares[:SHARE_BYTES] if number in self._survivors else shares[SHARE_BYTES:]
            for number, shares in self._held.items()
        }

    @property
    def survivors(self) -> frozenset[int]:
        """The list of survivors that this site has signed."""
        return self._survivors or frozenset()

    @property
    def cohort(self) -> Cohort:
        """The sites to which this one has sent shares."""
        if self._cohort is None:
            raise FedotpError("this site has not received the list of sites in the secure sum yet")
        return self._cohort


def add_pair(cohort: Cohort, numbers: Words, own: KeyPair, number: int, other: int) -> Words:
    """Apply the mask of the sites `number` and `other` to `numbers`: the smaller number adds, the other subtracts."""
    about = cohort.about(b"pair", min(number, other), max(number, other))
    common = mask(own.agree(cohort.adverts[other].masks, about), len(numbers))
    return numbers + common if number < other else numbers - common


def marks_of(cohort: Cohort, dealer: int, receiver: int, shares: bytes) -> bytes:
    """Compute digests of the share of a seed and of the share of a key, to check revealed shares."""
    about = cohort.about(b"mark", dealer, receiver)
    return mark_of(about, shares[:SHARE_BYTES]) + mark_of(about, shares[SHARE_BYTES:])


def mark_of(about: bytes, share: bytes) -> bytes:
    """Compute a 32-byte digest of a share; it reveals nothing, because shares are uniformly random."""
    return digest(about, share)
