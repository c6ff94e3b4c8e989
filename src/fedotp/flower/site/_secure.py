"""A site's part in secure sums: one at a time, with keys that live for that one and are never written down."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flwr.app import ConfigRecord

from fedotp.errors import FedotpError
from fedotp.flower import _messages as words
from fedotp.flower._agreement import Agreement, DisagreementError
from fedotp.flower.keys import KeyIdentity, read_site_keys
from fedotp.flower.secure import (
    Advert,
    Circle,
    Identity,
    Session,
    SiteSession,
    Unsigned,
    Words,
    pack,
    unpack,
    unpack_names,
    unpack_numbers,
)

log = logging.getLogger("fedotp.site")

_STRONG = 2 / 3 - 1e-6  # a share beyond which a server that lies about who dropped out gets nothing


@contextmanager
def disagreeing() -> Iterator[None]:
    """What is wrong with a secure sum is about the federation: the server is told."""
    try:
        yield
    except DisagreementError:
        raise
    except FedotpError as error:
        raise DisagreementError(str(error)) from error


class SecureSums:
    """The secure sums of site `name`, whose keys are in the folder `keys` ("": it has none).

    `required`: it takes part in nothing else; `least` is how many sites a sum must have.
    """

    def __init__(self, name: str, keys: str, *, required: bool, least: int) -> None:
        """Nothing is read before it is needed."""
        self._name, self._keys, self._required, self._least = name, keys, required, least
        self._identity: Identity | None = None
        self._current: SiteSession | None = None
        self._answered: tuple[bytes, Words] | None = None
        self._opened: dict[tuple[str, int], frozenset[int]] = {}  # by run and round: who was in the sum

    def require(self, agreement: Agreement) -> None:
        """Refuse a federation whose server would see this site's update, if the owner said so."""
        if not self._required:
            return
        if agreement.secure is None:
            raise DisagreementError(
                f"site {self._name} takes part only where updates are added up securely (--require-secure); start the "
                "server with --secure"
            )
        if agreement.secure.share < _STRONG:
            raise DisagreementError(
                f"site {self._name} wants sums that more than 2/3 of the sites open (--require-secure), and not "
                f"{agreement.secure.share:g}; raise --secure-threshold"
            )

    def keys(self, agreement: Agreement, number: int, record: ConfigRecord) -> bytes:
        """Keys for a new sum, which ends the last one."""
        session = _session(agreement, record)
        if self._current is None or self._current.session != session or self._current.number != number:
            self._answered = None
            self._current = SiteSession(session, number, self._name, self._own_identity())
        with disagreeing():
            return self._current.advertise().content

    def shares(self, agreement: Agreement, record: ConfigRecord) -> dict[str, list[int] | list[bytes]]:
        """Sealed shares for all others."""
        with disagreeing():
            names, keys = unpack_names(record), unpack(record)
            adverts = {number: Advert.of(names[number], content) for number, content in keys.items()}
            dealt = self._now(agreement, record).share(adverts, least=self._least)
        own = dealt.marks.keys() - dealt.letters.keys()  # for itself, no letter
        return pack({**dealt.letters, **dict.fromkeys(own, b"")}) | {words.MARKS: pack(dealt.marks)["parts"]}

    def masked(
        self,
        agreement: Agreement,
        record: ConfigRecord,
        round_: int,
        order: Mapping[str, bytes],
        train: Callable[[Circle, int], Words],
    ) -> Words:
        """What `train` makes, in round `round_`, of this sum's circle and this site's weight; masked.

        Asked twice for the same `order`, the site answers the same and does not train again; another is refused.
        """
        session = self._now(agreement, record)
        if session.session.round != round_:
            raise DisagreementError(f"round {round_} in a secure sum of round {session.session.round}")
        with disagreeing():
            letters = unpack(record)
        weight = record.get(words.WEIGHT)
        if not isinstance(weight, int) or not 1 <= weight <= session.session.most_images:
            raise DisagreementError(f"the server counts this site with {weight!r} images; right is from 1")
        asked = hashlib.sha256(repr((sorted(letters.items()), weight)).encode())
        for name in sorted(order):
            asked.update(hashlib.sha256(name.encode() + order[name]).digest())
        if self._answered is not None:
            if self._answered[0] != asked.digest():
                raise DisagreementError("this site has answered another order in the same secure sum")
            return self._answered[1]
        numbers = train(session.circle, weight)
        with disagreeing():
            self._answered = asked.digest(), session.mask(letters, numbers)
        return self._answered[1]

    def endorsed(self, agreement: Agreement, record: ConfigRecord) -> bytes:
        """A signature under who is in the sum.

        A round that is made again sends the same. Two sums of it tell the update of whoever is in only one of them.
        """
        session = self._now(agreement, record)
        with disagreeing():
            survivors = frozenset(unpack_numbers(record))
            if self._opened.get(_round_of(session), survivors) != survivors:
                raise DisagreementError(
                    f"this site has helped to open another sum of round {session.session.round}, and the two would "
                    "tell a single site's update; start the site again to allow it"
                )
            return session.endorse(survivors)

    def revealed(self, agreement: Agreement, record: ConfigRecord) -> dict[str, list[int] | list[bytes]]:
        """A share of every site's seed or key."""
        session = self._now(agreement, record)
        with disagreeing():
            revealed = session.reveal(unpack(record))
        self._opened[_round_of(session)] = session.survivors
        return pack(revealed)

    def _now(self, agreement: Agreement, record: ConfigRecord) -> SiteSession:
        """The sum that a message is about, if it is this site's last."""
        if self._current is None or self._current.session != _session(agreement, record):
            raise DisagreementError("this site has no keys for this secure sum: it was started again since, or is late")
        return self._current

    def _own_identity(self) -> Identity:
        if self._identity is None:
            held = read_site_keys(Path(self._keys)) if self._keys else None
            if held is None or held.peers is None:
                if self._required:
                    raise DisagreementError(f"site {self._name} does not know its peers' keys (--require-secure)")
                log.warning("there is no peers.toml: who the other sites are is the server's word")
            self._identity = Unsigned() if held is None else KeyIdentity(held.key, held.peers)
        return self._identity


def _round_of(session: SiteSession) -> tuple[str, int]:
    return session.session.run, session.session.round


def _session(agreement: Agreement, record: ConfigRecord) -> Session:
    """What sum a message is about; it must be one that was agreed on."""
    if agreement.secure is None:
        raise DisagreementError("the server asks for a secure sum, and none was agreed on")
    with disagreeing():
        session = Session.of(str(record.get(words.SESSION, "")))
    if session.terms != agreement.secure or session.run != agreement.run:
        raise DisagreementError("the server asks for another secure sum than was agreed on")
    return session
