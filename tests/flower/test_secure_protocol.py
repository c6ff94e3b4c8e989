"""Secure sums without Flower: exact whoever drops out where, and nothing opened by too few or by a lie."""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fedotp.errors import FedotpError
from fedotp.flower._wire import pack, unpack
from fedotp.flower.keys import KeyIdentity
from fedotp.flower.secure import Advert, SealedShares, ServerSession, Session, SiteSession, VoidSumError
from fedotp.flower.secure._crypto import KeyPair, combine, split, weights_at_zero
from fedotp.flower.secure._fixed_point import FixedPoint
from fedotp.flower.secure._session import Cohort

STEPS = ("keys", "shares", "masked", "endorse", "reveal")
SESSION = Session("a" * 32, 3, "b" * 32, agreement="c" * 64, prompt="d" * 64, share=0.5, bound=64, most_images=1000)
LENGTH = 17


class Signed:
    """An identity with keys of its own, as sites have."""

    keys = {f"site-{i}": Ed25519PrivateKey.generate() for i in range(12)}  # noqa: RUF012

    def __init__(self, name: str = "") -> None:
        self._name = name

    def sign(self, statement: bytes) -> bytes:
        return self.keys[self._name].sign(statement)

    def check(self, name: str, statement: bytes, signature: bytes) -> None:
        try:
            self.keys[name].public_key().verify(signature, statement)
        except (InvalidSignature, KeyError):
            raise FedotpError(f"it was not signed with the key of {name}") from None


def site_of(
    number: int, name: str, *, session: Session = SESSION, signed: bool = True, n_images: int = 7, accepted: int = 2
) -> SiteSession:
    identity = Signed(name) if signed else KeyIdentity(None, None)
    return SiteSession(session, number, name, identity, n_images=n_images, accepted=accepted)


@dataclass
class Play:
    """All parties of one sum in this process; `drops` are those who say nothing from a step on."""

    n: int
    session: Session = SESSION
    drops: dict[str, Collection[int]] | None = None
    signed: bool = True

    def __post_init__(self) -> None:
        identity = Signed() if self.signed else KeyIdentity(None, None)
        self.server = ServerSession(self.session, identity, {"prompt": np.zeros(LENGTH - 4)})
        names = {10 * i: f"site-{i}" for i in range(self.n)}  # numbers with gaps: not all sites are drawn
        self.sites = {
            number: site_of(number, name, session=self.session, signed=self.signed) for number, name in names.items()
        }
        draw = np.random.default_rng(0)
        self.numbers = {number: draw.integers(0, 2**64, LENGTH, np.uint64) for number in self.sites}

    def there(self, step: str, among: Iterable[int]) -> list[int]:
        gone = {10 * i for each in STEPS[: STEPS.index(step) + 1] for i in (self.drops or {}).get(each, ())}
        return [number for number in among if number not in gone]

    def keys(self) -> None:
        for number in self.there("keys", self.sites):
            self.server.take_advert(number, self.sites[number].advertise())

    def shares(self) -> None:
        for number in self.there("shares", self.server.cohort.numbers):
            self.server.take_shares(number, self.sites[number].share(self.server.cohort.adverts))

    def masked(self) -> None:
        for number in self.there("masked", self.server.dealers):
            self.sites[number].hold(self.server.letters_for(number))
            self.server.take_masked(number, self.sites[number].mask(self.numbers[number]))

    def endorse(self) -> None:
        for number in self.there("endorse", self.server.survivors):
            self.server.take_signature(number, self.sites[number].endorse(self.server.survivors))

    def reveal(self) -> None:
        for number in self.there("reveal", self.server.signatures):
            self.server.take_revealed(number, self.sites[number].reveal(self.server.signatures))

    def until(self, step: str) -> "Play":
        for each in STEPS[: STEPS.index(step) + 1]:
            getattr(self, each)()
        return self


def plain_sum(numbers: Iterable[np.ndarray]) -> np.ndarray:
    """Added up as Python's whole numbers, then modulo 2^64."""
    columns = zip(*(each.tolist() for each in numbers), strict=True)
    return np.array([sum(column) % 2**64 for column in columns], np.uint64)


# Exact, whoever drops out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_sum_is_exact_with_up_to_as_many_lost_at_each_step_as_may_be(step: str, lost: int) -> None:
    play = Play(6, drops={step: range(lost)}).until("reveal")
    expected = plain_sum(play.numbers[number] for number in play.server.survivors)
    np.testing.assert_array_equal(play.server.total(), expected)
    assert len(play.server.survivors) == 6 - (lost if STEPS.index(step) <= STEPS.index("masked") else 0)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_sum_is_exact_or_void(data: st.DataObject) -> None:
    """Any number of sites lost anywhere: enough are left and the sum is exact, or too few and nothing is opened."""
    n = data.draw(st.integers(3, 9))
    share = data.draw(st.sampled_from([0.5, 2 / 3, 0.8]))
    drops: dict[str, list[int]] = {step: [] for step in STEPS}
    for site in range(n):
        if data.draw(st.integers(0, 3)) == 0:
            drops[data.draw(st.sampled_from(STEPS))].append(site)
    play = Play(n, replace(SESSION, share=share), drops, signed=data.draw(st.booleans()))
    left = n - len(drops["keys"])
    try:
        play.until("reveal")
        total = play.server.total()
    except VoidSumError:
        threshold = max(3, int(share * left) + 1)
        assert left < 3 or left - sum(len(drops[step]) for step in STEPS[1:]) < threshold
    else:
        np.testing.assert_array_equal(total, plain_sum(play.numbers[number] for number in play.server.survivors))


def test_masked_numbers_look_like_chance_and_are_others_in_every_session() -> None:
    first, second = (Play(3, replace(SESSION, attempt=letter * 32)) for letter in "cd")
    said = []
    for play in (first, second):
        play.numbers = dict.fromkeys(play.sites, np.zeros(LENGTH, np.uint64))
        play.until("masked")
        said += [play.server._masked[number] for number in play.sites]
    assert not any(np.isin(one, other).any() for one, other in combinations(said, 2))
    bits = np.unpackbits(np.concatenate(said).view(np.uint8)).mean()
    assert 0.45 < bits < 0.55


# What is not opened --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["shares", "masked", "endorse", "reveal"])
def test_too_few_sites_open_nothing(step: str) -> None:
    play = Play(6, drops={step: range(3)})
    with pytest.raises(VoidSumError, match=r"3 of 6 sites .*, need 4"):
        play.until("reveal").server.total()


def test_of_two_thirds_two_lists_of_survivors_cannot_both_be_signed() -> None:
    """By counting, for every number of sites: both lists contain more than a third of them. A policy requires it."""
    for n in range(3, 10_001):
        threshold = max(3, math.floor(2 / 3 * n) + 1)
        assert 3 * (2 * threshold - n) > n
    adverts = {i: site_of(i, f"site-{i}", signed=False).advertise() for i in range(10)}
    assert Cohort(replace(SESSION, share=2 / 3), adverts).threshold == 7


def test_a_site_reveals_one_share_of_each_other_and_never_both() -> None:
    play = Play(5, drops={"masked": [4]}).until("reveal")
    held = play.sites[0]._held
    for number, share in play.sites[0].reveal(play.server.signatures).items():
        seed, key = held[number][:33], held[number][33:]
        assert share == (key if number == 40 else seed)


def share_other(play: Play, change: Callable[[dict[int, Advert]], object]) -> None:
    """The first site deals shares for other adverts than the sites have sent."""
    adverts = dict(play.until("keys").server.cohort.adverts)
    change(adverts)
    play.sites[0].share(adverts)


def advert_with(number: int, **others: Any) -> Callable[[Play], None]:
    """The server changes what a site has signed."""
    return lambda play: share_other(play, lambda each: each.update({number: replace(each[number], **others)}))


def session_with(**others: Any) -> Callable[[Play], None]:
    """What one site signs is of another session than what the others sign."""
    signed = site_of(10, "site-1", session=replace(SESSION, **others)).advertise()
    return lambda play: share_other(play, lambda each: each.update({10: signed}))


def swap_keys(play: Play) -> None:
    """The server puts keys of its own in a site's place."""
    own = site_of(10, "site-1", signed=False).advertise()
    share_other(play, lambda each: each.update({10: replace(own, signature=each[10].signature)}))


def deal_twice(play: Play) -> None:
    adverts = dict(play.until("shares").server.cohort.adverts)
    del adverts[40]
    play.sites[0].share(adverts)


def hold_other(play: Play, change: Callable[[dict[int, bytes]], object], step: str = "shares") -> None:
    """The first site opens other letters than the sites have sealed for it."""
    letters = play.until(step).server.letters_for(0)
    change(letters)
    play.sites[0].hold(letters)


def lie_to_two(play: Play) -> None:
    """Half of the sites receive one list, half another: neither gets enough signatures."""
    play.until("masked")
    lists = ([0, 10, 20, 30], [10, 20, 30, 40])
    play.sites[0].reveal({0: play.sites[0].endorse(lists[0]), 10: play.sites[10].endorse(lists[1])})


UNSIGNED, CHANGED = "not signed with the key of site-1", "cannot decrypt the share of site site-1"
LIES: dict[str, tuple[Callable[[Play], object], str]] = {
    "other survivors": (
        lambda play: play.until("endorse").sites[0].endorse([0, 10, 20]),
        "two different lists of survivors",
    ),
    "two lists": (lie_to_two, UNSIGNED),
    "mask twice": (
        lambda play: play.until("masked").sites[0].mask(play.numbers[0] + np.uint64(1)),
        "must mask its values once in a secure sum",
    ),
    "hold twice": (
        lambda play: hold_other(play, lambda each: each.pop(40), "masked"),
        "two different sets of shares in the same secure sum",
    ),
    "deal twice": (deal_twice, "two different lists of sites"),
    "reveal first": (lambda play: play.until("masked").sites[0].reveal({}), "cannot reveal shares before"),
    "reveal to few": (
        lambda play: play.until("endorse").sites[0].reveal({0: play.server.signatures[0]}),
        "1 of 5 sites signed the list of survivors, need 3",
    ),
    "survive without oneself": (
        lambda play: play.until("masked").sites[0].endorse([10, 20, 30, 40]),
        "must include this site",
    ),
    "survive unheard": (lambda play: play.until("masked").sites[0].endorse([0, 10, 20, 77]), "must have sent shares"),
    "mask first": (
        lambda play: play.until("shares").sites[0].mask(play.numbers[0]),
        "after it has received all shares",
    ),
    "hold first": (lambda play: play.until("keys").sites[0].hold({}), "has not received the list of sites"),
    "few letters": (
        lambda play: hold_other(play, lambda each: [each.pop(number) for number in (20, 30, 40)]),
        "2 of 5 sites sent shares, need 3",
    ),
    "a changed letter": (
        lambda play: hold_other(play, lambda each: each.update({10: each[10][:-1] + bytes([each[10][-1] ^ 1])})),
        CHANGED,
    ),
    "the letter of another": (lambda play: hold_other(play, lambda each: each.update({10: each[20]})), CHANGED),
    "letters of another session": (
        lambda play: play.until("shares").sites[0].hold(Play(play.n).until("shares").server.letters_for(0)),
        "or is for another sum",
    ),
    "swapped keys": (swap_keys, UNSIGNED),
    "keys of another session": (session_with(attempt="e" * 32), UNSIGNED),  # which may have been opened since
    **{
        f"another {name}": (session_with(**{name: other}), UNSIGNED)
        for name, other in {"agreement": "e" * 64, "prompt": "e" * 64, "round": 4, "most_images": 1}.items()
    },
    "another weight": (advert_with(10, weight=1), UNSIGNED),
    "another weight of its own": (advert_with(0, weight=1), "does not contain this site's own keys"),
    "a weight beyond the bound": (advert_with(10, weight=1001), "site site-1: must be from 1 to 1000 images, got 1001"),
    "a start from later": (
        lambda play: site_of(0, "site-0", accepted=3),
        "the accepted round must be below the current round 3, got 3",
    ),
    "an invented site": (
        lambda play: share_other(
            play, lambda each: each.update({90: site_of(90, "invented", signed=False).advertise()})
        ),
        "not signed with the key of invented",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_server_hears_one_line_and_gets_nothing(lie: str) -> None:
    tell, words = LIES[lie]
    with pytest.raises(FedotpError, match=words) as raised:
        tell(Play(5))
    assert "\n" not in str(raised.value)


def test_asked_twice_for_the_same_a_site_says_the_same() -> None:
    play = Play(4).until("reveal")
    site = play.sites[0]
    assert site.share(play.server.cohort.adverts) is site.share(play.server.cohort.adverts)
    site.hold(play.server.letters_for(0))
    np.testing.assert_array_equal(site.masked, play.server._masked[0])
    assert site.reveal(play.server.signatures) == site.reveal(play.server.signatures)


# What a lying site can do ------------------------------------------------------------------------------------------


def test_a_wrong_share_is_named_and_the_sum_opened_without_it() -> None:
    play = Play(5).until("endorse")
    wrong = play.sites[0].reveal(play.server.signatures)
    wrong[10] = bytes(33)
    with pytest.raises(FedotpError, match="its share of site-1 does not match the digest"):
        play.server.take_revealed(0, wrong)
    play.drops = {"reveal": [0]}
    play.reveal()
    np.testing.assert_array_equal(play.server.total(), plain_sum(play.numbers.values()))


class OtherSecret(KeyPair):
    """Shows one key and deals out shares of another."""

    @property
    def secret(self) -> bytes:
        return bytes(32)


def test_shares_that_do_not_give_a_lost_sites_key_open_nothing() -> None:
    play = Play(4, drops={"masked": [3]})
    play.sites[30]._masks = OtherSecret()
    with pytest.raises(VoidSumError, match="site site-3 sent wrong shares"):
        play.until("reveal").server.total()


def test_masked_numbers_shares_and_keys_that_are_not_right_are_refused() -> None:
    play = Play(3, signed=False).until("keys")
    with pytest.raises(FedotpError, match="another site has the same keys"):
        play.server.take_advert(90, replace(play.sites[0].advertise(), name="again"))
    dealt = play.sites[0].share(play.server.cohort.adverts)
    with pytest.raises(FedotpError, match="did not send one share for every site"):
        play.server.take_shares(0, SealedShares({10: dealt.letters[10]}, dealt.marks))
    for numbers in (np.zeros(LENGTH, np.int64), np.zeros(LENGTH + 1, np.uint64)):
        with pytest.raises(FedotpError, match=r"masked values must be uint64 of shape"):
            Play(3).until("shares").server.take_masked(0, numbers)


# Shamir's shares ---------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(secret=st.binary(min_size=32, max_size=32), n=st.integers(1, 8), data=st.data())
def test_any_threshold_of_shares_give_the_secret(secret: bytes, n: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, n))
    shares = split(secret, threshold, range(1, n + 1))
    chosen = data.draw(st.permutations(list(shares)))[: data.draw(st.integers(threshold, n))]
    assert combine({place: shares[place] for place in chosen}, weights_at_zero(chosen)) == secret


# Fixed point -------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sums_in_fixed_point_do_not_overflow_and_are_as_near_as_promised(data: st.DataObject) -> None:
    n, most = data.draw(st.integers(1, 50)), data.draw(st.integers(1, 10**7))
    bound = data.draw(st.integers(1, 1000))
    fixed = FixedPoint(n, most, bound)
    extreme = data.draw(st.booleans())
    floats = st.sampled_from([-float(bound), float(bound)]) if extreme else st.floats(-bound, bound, width=32)
    values = data.draw(st.lists(floats, min_size=n, max_size=n))
    weights = [most] * n if extreme else data.draw(st.lists(st.integers(0, most), min_size=n, max_size=n))
    total = np.zeros(1, np.uint64)
    exact = 0
    for value, weight in zip(values, weights, strict=True):
        words = fixed.encode(np.array([value]), weight)
        total += words
        exact += int(words.view(np.int64)[0])
    assert int(total.view(np.int64)[0]) == exact  # Python's whole numbers never overflow
    wanted = sum(Fraction(value) * weight for value, weight in zip(values, weights, strict=True))
    assert abs(Fraction(exact, 2**fixed.bits) - wanted) <= Fraction(n, 2 ** (fixed.bits + 1))
    assert fixed.decode(total)[0] == pytest.approx(exact / 2**fixed.bits)


TOO_FAR = r"must be at most 64 \(--secure-range\), got"
UNFIT: list[tuple[Callable[[], object], str]] = [
    *(
        (lambda value=value: FixedPoint(3, 10, 64).encode(np.array([0.0, value]), 1), TOO_FAR)
        for value in (64.5, -65.0, float("inf"), float("nan"))
    ),
    (lambda: FixedPoint(3, 10, 64).encode(np.array([0.0]), 11), "weight must be from 0 to 10 images, got 11"),
    (lambda: FixedPoint(10_000, 10**9, 10**6), r"do not fit 64 bits; decrease --max-images"),
    (lambda: FixedPoint(3, 1000, 64).decode(np.array([2**63 - 1], np.uint64)), "the secure sum is invalid"),
    (lambda: weights_at_zero([1, 1, 2]), "must be distinct and at least 1"),
    (lambda: weights_at_zero([0, 1]), "must be distinct and at least 1"),
]


@pytest.mark.parametrize(("use", "why"), UNFIT)
def test_numbers_that_do_not_fit_are_refused(use: Callable[[], object], why: str) -> None:
    with pytest.raises(FedotpError, match=why):
        use()


# What strangers write ----------------------------------------------------------------------------------------------


def test_what_was_packed_is_unpacked() -> None:
    parts = {3: b"three", 1: b"one"}
    assert unpack(pack(parts)) == parts
    assert Session.of(SESSION.text) == SESSION
    with pytest.raises(FedotpError, match="contains no valid site numbers"):
        unpack({"numbers": [1, 1], "parts": [b"", b""]})
