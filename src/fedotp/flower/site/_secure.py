"""A site's part in secure sums: one at a time, with keys that live for that one and are never written down."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from fedotp.errors import FedotpError
from fedotp.flower import _wire as wire
from fedotp.flower._agreement import Agreement, DisagreementError
from fedotp.flower._wire import digest_of, pack, unpack, unpack_names, unpack_numbers
from fedotp.flower.keys import KeyIdentity, SiteKeys
from fedotp.flower.secure import Advert, Session, SiteSession
from fedotp.methods import Parameters

log = logging.getLogger("fedotp.site")

_STRONG = 2 / 3  # from this share on, a server that lies about who dropped out gets nothing


@contextmanager
def disagreeing() -> Iterator[None]:
    """Errors of a secure sum concern the federation: the server receives them."""
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
        self._identity: KeyIdentity | None = None
        self._current: SiteSession | None = None
        self._opened: dict[tuple[str, int], frozenset[object]] = {}  # by run and round: who was in the sum

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

    def keys(self, agreement: Agreement, record: ConfigRecord, number: int, accepted: int, n_images: int) -> bytes:
        """Keys for a new sum, which ends the last one; this site has `n_images` images."""
        session, current = _session(agreement, record), self._current
        if current is None or (current.session, *_order_of(current)) != (session, number, session.round, accepted):
            identity = self._own_identity()
            with disagreeing():
                current = SiteSession(session, number, self._name, identity, n_images=n_images, accepted=accepted)
            self._current = current
        with disagreeing():
            return current.advertise().content

    def shares(self, agreement: Agreement, record: ConfigRecord) -> dict[str, list[int] | list[bytes]]:
        """Sealed shares for all others."""
        with disagreeing():
            names, keys = unpack_names(record), unpack(record)
            adverts = {number: Advert.of(names[number], content) for number, content in keys.items()}
            dealt = self._now(agreement, record).share(adverts, least=self._least, strong=self._required)
        own = dealt.marks.keys() - dealt.letters.keys()  # for itself, no letter
        return pack({**dealt.letters, **dict.fromkeys(own, b"")}) | {wire.MARKS: pack(dealt.marks)["parts"]}

    def masked(
        self,
        record: ConfigRecord,
        order: tuple[Agreement, int, int, int, Parameters],
        train: Callable[[SiteSession], NDArray[np.uint64]],
    ) -> NDArray[np.uint64]:
        """What `train` makes of this sum's cohort and this site's weight; masked.

        The order must be the one that all sites of the sum have signed. Asked twice, the site answers the same and does
        not train again.
        """
        agreement, *numbers, received = order
        session = self._now(agreement, record)
        if tuple(numbers) != _order_of(session):
            raise DisagreementError(
                "the server orders (number, round, accepted round) = "
                f"{tuple(numbers)}; the sites of the secure sum have signed {_order_of(session)}"
            )
        if digest_of(received) != session.session.prompt:
            raise DisagreementError("the server has sent another prompt than the sites of the secure sum have signed")
        with disagreeing():
            session.hold(unpack(record))
        if session.masked is None:
            session.mask(train(session))
        assert session.masked is not None
        return session.masked

    def endorsed(self, agreement: Agreement, record: ConfigRecord) -> bytes:
        """A signature under who is in the sum.

        A repeated round sends the same update, so two sums of it over different sites reveal the update of a
        site that is in only one of them.
        """
        session = self._now(agreement, record)
        with disagreeing():
            survivors = unpack_numbers(record)
            members = session.cohort.members(survivors)
            if self._opened.get(_round_of(session), members) != members:
                raise DisagreementError(
                    f"this site has helped to open another sum of round {session.session.round}, and the two would "
                    "reveal a single site's update; start the site again to allow it"
                )
            return session.endorse(survivors)

    def revealed(self, agreement: Agreement, record: ConfigRecord) -> dict[str, list[int] | list[bytes]]:
        """A share of every site's seed or key."""
        session = self._now(agreement, record)
        with disagreeing():
            revealed = session.reveal(unpack(record))
        self._opened[_round_of(session)] = session.cohort.members(session.survivors)
        return pack(revealed)

    def _now(self, agreement: Agreement, record: ConfigRecord) -> SiteSession:
        """The sum that a message is about, if it is this site's last."""
        if self._current is None or self._current.session != _session(agreement, record):
            raise DisagreementError("this site has no keys for this secure sum: it was started again since, or is late")
        return self._current

    def _own_identity(self) -> KeyIdentity:
        if self._identity is None:
            held = SiteKeys.read(Path(self._keys)) if self._keys else None
            if held is None or held.peers is None:
                if self._required:
                    raise DisagreementError(f"site {self._name} does not know its peers' keys (--require-secure)")
                log.warning("there is no peers.toml: who the other sites are is the server's word")
            self._identity = KeyIdentity(None, None) if held is None else KeyIdentity(held.key, held.peers)
        return self._identity


def _round_of(session: SiteSession) -> tuple[str, int]:
    return session.session.run, session.session.round


def _order_of(session: SiteSession) -> tuple[int, int, int]:
    """The site's number, the round and the last accepted round, as signed."""
    return session.number, session.session.round, session.advert.accepted


def _session(agreement: Agreement, record: ConfigRecord) -> Session:
    """What sum a message is about; it must be one that was agreed on."""
    if agreement.secure is None:
        raise DisagreementError("the server asks for a secure sum, and none was agreed on")
    with disagreeing():
        session = Session.of(str(record.get(wire.SESSION, "")))
    agreed = agreement.secure, agreement.run, agreement.digest
    if (session.terms, session.run, session.agreement) != agreed:
        raise DisagreementError("the server asks for a secure sum of another agreement than the one in its message")
    return session
