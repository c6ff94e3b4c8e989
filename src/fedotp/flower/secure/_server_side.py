"""The server's side of a secure sum: it forwards encrypted shares, adds up masked values, and unmasks their sum."""

from collections.abc import Mapping

import numpy as np

from fedotp.errors import FedotpError
from fedotp.flower.keys import KeyIdentity
from fedotp.flower.secure._crypto import SHARE_BYTES, KeyPair, combine, derive, mask, weights_at_zero
from fedotp.flower.secure._fixed_point import Average, Floats, Words, average_of, n_numbers
from fedotp.flower.secure._session import Advert, Cohort, Session, VoidSumError
from fedotp.flower.secure._site_side import SealedShares, add_pair, mark_of

_MARKS_BYTES = 64


class ServerSession:
    """One session at the server, with sites by number. An invalid answer raises FedotpError, which excludes the site.

    `cohort`, `dealers`, `survivors` and `signatures` are the sites that have completed each step; VoidSumError means
    that the sum can no longer be opened.
    """

    def __init__(self, session: Session, identity: KeyIdentity, like: Mapping[str, Floats]) -> None:
        """`like` has the shapes of a site's values; `identity` checks signatures."""
        self.session, self._identity, self._like = session, identity, like
        self.n_values = n_numbers(like)
        self._adverts: dict[int, Advert] = {}
        self._cohort: Cohort | None = None
        self._dealt: dict[int, SealedShares] = {}
        self._masked: dict[int, Words] = {}
        self._signatures: dict[int, bytes] = {}
        self._revealed: dict[int, Mapping[int, bytes]] = {}

    # Keys ---------------------------------------------------------------------------------------------------------

    def take_advert(self, number: int, advert: Advert) -> None:
        """Accept a site's keys."""
        self._identity.check(advert.name, self.session.keys_statement(number, advert), advert.signature)
        if any(advert.keys == other.keys for other in self._adverts.values()):
            raise FedotpError("another site has the same keys")
        self._adverts[number] = advert

    @property
    def cohort(self) -> Cohort:
        """The sites that have sent keys; no others can join."""
        if self._cohort is None:
            try:
                self._cohort = Cohort(self.session, self._adverts)
            except FedotpError as error:
                raise VoidSumError(str(error)) from None
            self._cohort.fixed  # noqa: B018 raises if sums do not fit, before shares are dealt
        return self._cohort

    # Shares -------------------------------------------------------------------------------------------------------

    def take_shares(self, number: int, dealt: SealedShares) -> None:
        """Accept a site's sealed shares for all others."""
        others = self.cohort.adverts.keys() - {number}
        if dealt.letters.keys() != others or dealt.marks.keys() != self.cohort.adverts.keys():
            raise FedotpError("did not send one share for every site of the sum")
        if any(len(marks) != _MARKS_BYTES for marks in dealt.marks.values()):
            raise FedotpError(f"digests of shares must have {_MARKS_BYTES} bytes")
        self._dealt[number] = dealt

    @property
    def dealers(self) -> list[int]:
        """The sites that have sent shares."""
        self.cohort.require_enough(self._dealt, "sent shares")
        return sorted(self._dealt)

    def letters_for(self, number: int) -> dict[int, bytes]:
        """Return the sealed shares for a site, by dealer."""
        return {dealer: self._dealt[dealer].letters[number] for dealer in self.dealers if dealer != number}

    # Sums ---------------------------------------------------------------------------------------------------------

    def take_masked(self, number: int, masked: Words) -> None:
        """Accept a site's masked values."""
        if masked.dtype != np.uint64 or masked.shape != (self.n_values,):
            right, got = f"uint64 of shape ({self.n_values},)", f"{masked.dtype} of shape {masked.shape}"
            raise FedotpError(f"masked values must be {right}, got {got}")
        self._masked[number] = masked

    @property
    def survivors(self) -> list[int]:
        """The sites that have sent masked values, which are the sites in the sum."""
        self.cohort.require_enough(self._masked, "sent masked values")
        return sorted(self._masked)

    def take_signature(self, number: int, signature: bytes) -> None:
        """Accept a site's signature of the list of survivors."""
        statement = self.cohort.survivors_statement(self.survivors)
        self._identity.check(self.cohort.adverts[number].name, statement, signature)
        self._signatures[number] = signature

    @property
    def signatures(self) -> dict[int, bytes]:
        """The signatures of the list of survivors, by site."""
        self.cohort.require_enough(self._signatures, "signed the list of survivors")
        return self._signatures

    def take_revealed(self, number: int, shares: Mapping[int, bytes]) -> None:
        """Accept the shares that a site reveals, which must match the dealers' digests."""
        cohort = self.cohort
        if shares.keys() != set(self.dealers):
            raise FedotpError("did not reveal one share of every dealer")
        for dealer, share in shares.items():
            marks = self._dealt[dealer].marks[number]
            right = marks[:32] if dealer in self._masked else marks[32:]
            if len(share) != SHARE_BYTES or mark_of(cohort.about(b"mark", dealer, number), share) != right:
                raise FedotpError(
                    f"its share of {cohort.adverts[dealer].name} does not match the digest; one of the two is dishonest"
                )
        self._revealed[number] = shares

    def average(self) -> Average:
        """Compute the weighted average of the survivors' values. Raise VoidSumError for an impossible sum."""
        try:
            return average_of(self.cohort.fixed, self.total(), self._like)
        except FedotpError as error:
            raise VoidSumError(str(error)) from None

    def total(self) -> Words:
        """Unmask the sum of the survivors' values, modulo 2^64."""
        cohort, survivors = self.cohort, self.survivors
        cohort.require_enough(self._revealed, "revealed shares")
        who = sorted(self._revealed)[: cohort.threshold]
        weights = weights_at_zero([cohort.places[number] for number in who])
        total = np.zeros(self.n_values, np.uint64)
        for number in survivors:
            total += self._masked[number]
        for dealer in self.dealers:
            secret = combine({number: self._revealed[number][dealer] for number in who}, weights)
            if dealer in self._masked:
                total -= mask(derive(secret, cohort.about(b"own", dealer, dealer)), self.n_values)
            else:
                total = self._without(total, dealer, secret)
        return total

    def _without(self, total: Words, lost: int, secret: bytes) -> Words:
        """Remove the survivors' masks with a lost site, whose mask key is `secret`, from `total`."""
        cohort, keys = self.cohort, KeyPair.of(secret)
        name = cohort.adverts[lost].name
        if keys.public != cohort.adverts[lost].masks:
            raise VoidSumError(f"site {name} sent wrong shares, which do not give its key")
        for number in self.survivors:
            total = add_pair(cohort, total, keys, lost, number)  # the negative of the survivor's mask
        return total
