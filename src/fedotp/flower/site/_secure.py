"""A site's part in secure sums: one at a time, with keys for that sum only, which are never stored on disk."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from fedotp.errors import FedotpError
from fedotp.flower import _wire as wire
from fedotp.flower._agreement import Agreement, DisagreementError
from fedotp.flower._wire import digest_of, pack, unpack, unpack_numbers
from fedotp.flower.keys import KeyIdentity
from fedotp.flower.secure import Advert, Session, SiteSession
from fedotp.flower.site._policy import Policy, refusal, require_between
from fedotp.methods import Parameters

log = logging.getLogger("fedotp.site")


@contextmanager
def disagreeing() -> Iterator[None]:
    """Convert errors of a secure sum to DisagreementError, so that the server receives them."""
    try:
        yield
    except DisagreementError:
        raise
    except FedotpError as error:
        raise DisagreementError(str(error)) from error


class SecureSums:
    """The secure sums of site `name`, which signs with its `identity`, under the owner's `policy`."""

    def __init__(self, name: str, identity: Callable[[], KeyIdentity], policy: Policy) -> None:
        self._name, self._identity, self._policy = name, identity, policy
        self._current: SiteSession | None = None
        self._opened: dict[tuple[str, int], frozenset[object]] = {}  # sites in the sum, by run and round

    def keys(self, agreement: Agreement, record: ConfigRecord, number: int, accepted: int, n_images: int) -> bytes:
        """Make keys for a new sum, which ends the last one; this site has `n_images` images."""
        session, current = _session(agreement, record), self._current
        if current is None or (current.session, *_order_of(current)) != (session, number, session.round, accepted):
            identity = self._identity()
            if identity.peers is None and self._policy.secure_sums:
                raise refusal("this site has no peers.crt to check other sites by; ask the coordinator for it")
            if identity.peers is None and current is None:
                log.warning("no peers.crt: the identities of the other sites are unverified")
            with disagreeing():
                current = SiteSession(session, number, self._name, identity, n_images=n_images, accepted=accepted)
            self._current = current
        with disagreeing():
            return current.advertise().content

    def shares(self, agreement: Agreement, record: ConfigRecord) -> dict[str, list[int] | list[bytes]]:
        """Make sealed shares for all other sites."""
        with disagreeing():
            names, keys = unpack(record, wire.NAMES), unpack(record)
            require_between("sites in a secure sum", len(keys), least=self._policy.secure_sites)
            adverts = {
                number: Advert.of(names[number].decode(errors="replace"), content) for number, content in keys.items()
            }
            dealt = self._now(agreement, record).share(adverts)
        own = dealt.marks.keys() - dealt.letters.keys()  # no letter for itself
        return pack({**dealt.letters, **dict.fromkeys(own, b"")}) | {wire.MARKS: pack(dealt.marks)["parts"]}

    def masked(
        self,
        record: ConfigRecord,
        order: tuple[Agreement, int, int, int, Parameters],
        train: Callable[[SiteSession], NDArray[np.uint64]],
    ) -> tuple[NDArray[np.uint64], int]:
        """Mask the result of `train` for this sum; return it and the site's weight.

        All sites of the sum must have signed the same `order`. Repeated requests return the same answer, without
        training again.
        """
        agreement, *numbers, received = order
        session = self._now(agreement, record)
        if tuple(numbers) != _order_of(session):
            raise DisagreementError(
                f"the sites of the secure sum have signed (number, round, accepted round) = {_order_of(session)}, "
                f"got {tuple(numbers)} from the server"
            )
        if digest_of(received) != session.session.prompt:
            raise DisagreementError("the server's prompt is not the one that the sites of the secure sum have signed")
        with disagreeing():
            session.hold(unpack(record))
        if session.masked is None:
            session.mask(train(session))
        assert session.masked is not None
        return session.masked, session.advert.weight

    def endorsed(self, agreement: Agreement, record: ConfigRecord) -> dict[str, bytes]:
        """Sign the list of survivors.

        A repeated round sends the same update, so two sums over different sites would reveal the update of a site that
        is in only one of them.
        """
        session = self._now(agreement, record)
        with disagreeing():
            survivors = unpack_numbers(record)
            members = session.cohort.members(survivors)
            require_between("sites in a secure sum", len(members), least=self._policy.secure_sites)
            if self._opened.get(_round_of(session), members) != members:
                raise DisagreementError(
                    f"this site has already opened another sum of round {session.session.round}; the two would reveal "
                    "the update of a single site; restart the site to allow it"
                )
            return {wire.SURVIVORS: session.endorse(survivors)}

    def revealed(self, agreement: Agreement, record: ConfigRecord) -> dict[str, list[int] | list[bytes]]:
        """Reveal a share of every site's seed or key."""
        session = self._now(agreement, record)
        with disagreeing():
            revealed = session.reveal(unpack(record))
        self._opened[_round_of(session)] = session.cohort.members(session.survivors)
        return pack(revealed)

    def _now(self, agreement: Agreement, record: ConfigRecord) -> SiteSession:
        """Return the session of a message, which must be this site's last."""
        if self._current is None or self._current.session != _session(agreement, record):
            raise DisagreementError("this site has no keys for this secure sum: it was restarted since, or is too late")
        return self._current


def _round_of(session: SiteSession) -> tuple[str, int]:
    return session.session.run, session.session.round


def _order_of(session: SiteSession) -> tuple[int, int, int]:
    """Return the signed number of the site, round and last accepted round."""
    return session.number, session.session.round, session.advert.accepted


def _session(agreement: Agreement, record: ConfigRecord) -> Session:
    """Parse the session of a message, which must match the agreement."""
    if agreement.secure is None:
        raise DisagreementError("the server requested a secure sum without agreement on one")
    with disagreeing():
        session = Session.of(str(record.get(wire.SESSION, "")))
    agreed = agreement.secure, agreement.run, agreement.digest
    if (session.terms, session.run, session.agreement) != agreed:
        raise DisagreementError("the server requested a secure sum that does not match the agreement in its message")
    return session
