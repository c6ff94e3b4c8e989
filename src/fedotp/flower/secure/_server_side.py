"""The server's side of a secure sum: it passes on what it cannot read, adds up, and takes the masks off the sum."""

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
    """One session at the server; sites are numbers. What is wrong with an answer raises, and the site is out.

    After each step, `cohort`, `dealers`, `survivors` and `signatures` are those who have come through it; VoidSumError
    says that the sum cannot be opened any more.
    """

    def __init__(self, session: Session, identity: KeyIdentity, like: Mapping[str, Floats]) -> None:
        """A site sends values with the shapes of `like`; `identity` checks signatures where there are any."""
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
        """A site's keys."""
        self._identity.check(advert.name, self.session.keys_statement(number, advert), advert.signature)
        if any(advert.keys == other.keys for other in self._adverts.values()):
            raise FedotpError("its keys are those of another site")
        self._adverts[number] = advert

    @property
    def cohort(self) -> Cohort:
        """Those whose keys are known, when all that come have come."""
        if self._cohort is None:
            try:
                self._cohort = Cohort(self.session, self._adverts)
            except FedotpError as error:
                raise VoidSumError(str(error)) from None
            self._cohort.fixed  # noqa: B018 what does not fit is refused before shares are dealt
        return self._cohort

    # Shares -------------------------------------------------------------------------------------------------------

    def take_shares(self, number: int, dealt: SealedShares) -> None:
        """A site's sealed shares for all others."""
        others = self.cohort.adverts.keys() - {number}
        if dealt.letters.keys() != others or dealt.marks.keys() != self.cohort.adverts.keys():
            raise FedotpError("it has not dealt out a share for every site of the sum")
        if any(len(marks) != _MARKS_BYTES for marks in dealt.marks.values()):
            raise FedotpError(f"its marks have a wrong length; right are {_MARKS_BYTES} bytes")
        self._dealt[number] = dealt

    @property
    def dealers(self) -> list[int]:
        """Those who have dealt out shares."""
        self.cohort.require_enough(self._dealt, "have dealt out shares")
        return sorted(self._dealt)

    def letters_for(self, number: int) -> dict[int, bytes]:
        """The sealed shares that others have dealt to a site, by who did."""
        return {dealer: self._dealt[dealer].letters[number] for dealer in self.dealers if dealer != number}

    # Sums ---------------------------------------------------------------------------------------------------------

    def take_masked(self, number: int, masked: Words) -> None:
        """A site's masked numbers."""
        if masked.dtype != np.uint64 or masked.shape != (self.n_values,):
            raise FedotpError(
                f"its masked numbers are {masked.dtype} of shape {masked.shape}; right is uint64 of ({self.n_values},)"
            )
        self._masked[number] = masked

    @property
    def survivors(self) -> list[int]:
        """Those whose masked numbers are there: who is in the sum."""
        self.cohort.require_enough(self._masked, "have sent masked numbers")
        return sorted(self._masked)

    def take_signature(self, number: int, signature: bytes) -> None:
        """A site's signature under who is in the sum."""
        statement = self.cohort.survivors_statement(self.survivors)
        self._identity.check(self.cohort.adverts[number].name, statement, signature)
        self._signatures[number] = signature

    @property
    def signatures(self) -> dict[int, bytes]:
        """The signatures under who is in the sum, by site."""
        self.cohort.require_enough(self._signatures, "have signed who is in the sum")
        return self._signatures

    def take_revealed(self, number: int, shares: Mapping[int, bytes]) -> None:
        """The shares that a site reveals; one that its dealer did not deal out is refused, and the others with it."""
        cohort = self.cohort
        if shares.keys() != set(self.dealers):
            raise FedotpError("it does not reveal one share of every site that has dealt")
        for dealer, share in shares.items():
            marks = self._dealt[dealer].marks[number]
            right = marks[:32] if dealer in self._masked else marks[32:]
            if len(share) != SHARE_BYTES or mark_of(cohort.about(b"mark", dealer, number), share) != right:
                raise FedotpError(
                    f"its share of {cohort.adverts[dealer].name} is not the one that was dealt out; one of the two lies"
                )
        self._revealed[number] = shares

    def average(self) -> Average:
        """The weighted average of the survivors' values. VoidSumError: their sum is one that no sites can have."""
        try:
            return average_of(self.cohort.fixed, self.total(), self._like)
        except FedotpError as error:
            raise VoidSumError(str(error)) from None

    def total(self) -> Words:
        """The sum of what the survivors masked, modulo 2^64."""
        cohort, survivors = self.cohort, self.survivors
        cohort.require_enough(self._revealed, "have revealed shares")
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
        """`total` without the masks that the survivors have with a site that is lost, whose mask key was `secret`."""
        cohort, keys = self.cohort, KeyPair.of(secret)
        name = cohort.adverts[lost].name
        if keys.public != cohort.adverts[lost].masks:
            raise VoidSumError(f"the shares of {name} do not give its key: it has dealt out wrong ones")
        for number in self.survivors:
            total = add_pair(cohort, total, keys, lost, number)  # the opposite of what the survivor has added
        return total
