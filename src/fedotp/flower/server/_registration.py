"""Registration of sites: name and classes, agreement, numbers of images."""

import logging
import time
from collections.abc import Iterable
from dataclasses import replace

from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from fedotp._system import Interrupt
from fedotp._text import one_line
from fedotp.errors import FedotpError, TransientError, listed
from fedotp.flower import _wire as wire
from fedotp.flower._agreement import Agreement
from fedotp.flower._wire import content_of, untrusted_input
from fedotp.flower.link import Transport, is_lost
from fedotp.flower.server._members import Member, Registry, State
from fedotp.flower.server._server_settings import ServerSettings

log = logging.getLogger("fedotp.server")

_PAUSE = 0.5
_REMIND = 30.0  # seconds between two log lines about missing sites
_ASK_AGAIN = 120.0  # seconds after which an answer may be lost; a site that already answered repeats it quickly
_SETTLED = 3.0  # seconds without a newcomer after which all sites are there, where no list names them
_LONGEST = 100  # characters of a name or a domain
_MOST_IMAGES = 10**9
_LAST = 1 << 62  # sorts sites with their own images after parts of a common data set


class Registration:
    """Registers sites as they connect; it waits for them only at the start of a run.

    If names or classes are not known, a site is first asked for them. Then it receives the agreement and its number,
    prepares, and is ready, or answers why it cannot take part.
    """

    def __init__(
        self,
        transport: Transport,
        registry: Registry,
        agreement: Agreement,
        *,
        begun: bool = False,
        new_counts: bool = False,
    ) -> None:
        """`agreement` may still be without classes.

        In a run that has `begun`, a site weighs no more than it announced at first, unless `new_counts` are allowed.
        """
        self.transport = transport
        self.registry = registry
        self.agreement = agreement
        self.decided = begun or (bool(agreement.classes) and registry.nodes is not None)
        self._begun = begun
        self._new_counts = new_counts
        self._waiting: dict[str, int] = {}
        self._asked: dict[int, float] = {}
        self._ignored: set[int] = set()
        self._parts: dict[str, int] = {}

    def gather(self, settings: ServerSettings, interrupt: Interrupt | None = None) -> None:
        """Wait until as many sites are ready as `settings` ask for, or until the user stops the server."""
        start = reminded = newcomer = time.monotonic()
        n_seen = 0
        while True:
            if interrupt is not None and interrupt.wanted:
                raise KeyboardInterrupt
            self.step()
            members = [member for member in self.registry.everyone if member.node is not None]
            if len(members) != n_seen:
                n_seen, newcomer = len(members), time.monotonic()
            wanted = settings.min_sites or self.registry.n_registered  # without sites whose keys were removed
            settled = wanted or (n_seen and time.monotonic() - newcomer > _SETTLED)
            introduced = [member for member in members if member.state is State.INTRODUCED]
            ready = [member for member in members if member.state is State.READY]
            refused = [member for member in members if member.state is State.REFUSED]
            if refused and len(refused) == max(wanted, n_seen):
                raise FedotpError("every site was refused; the log says why")
            if settings.min_sites == 0:
                wanted = (wanted or n_seen) - len(refused)  # the log says who and why
            if not self.decided and introduced and settled and len(introduced) >= wanted:
                self._decide(introduced)
            elif self.decided and ready and len(ready) >= wanted:
                self._begun = True
                return
            now = time.monotonic()
            if settings.start_timeout and now - start > settings.start_timeout:
                raise TransientError(
                    f"only {len(ready) + len(introduced)} of {wanted} sites are there after "
                    f"{settings.start_timeout:g} s; "
                    "raise start-timeout, or lower min-sites"
                )
            if now - reminded > _REMIND:
                reminded = now
                states = [f"{member.name or 'a site'}: {member.state}" for member in self.registry.everyone]
                log.info("waiting for sites: %d of %d ready (%s)", len(ready), wanted, listed(states))
            time.sleep(_PAUSE)

    def step(self) -> None:
        """Update the list of connected sites, send the next request to new ones, and process their answers."""
        online = self.transport.online()
        for node, came in online.items():
            if node not in self._ignored:
                self._meet(node, came)
        for member in self.registry.everyone:
            if member.node is not None and member.node not in online:
                lost = self.transport.lost_since.pop(member.node, None)
                if lost is None and member.state not in (State.UNKNOWN, State.REFUSED):
                    log.warning("site %s disconnected", member.called)
                member.gone = time.monotonic() if lost is None else lost
                member.node, member.came, member.state = None, "", State.UNKNOWN
        self.registry.newcomers = [member for member in self.registry.newcomers if member.node is not None]
        hellos = [self._hello(member) for member in self.registry.everyone if self._is_next(member)]
        self._waiting |= self.transport.send(hellos)
        self._waiting = {number: node for number, node in self._waiting.items() if node in online}
        for node, reply in self.transport.collect(self._waiting).items():
            asked = self.registry.of_node(node)
            if asked is None or asked.state is not State.ASKED:
                continue
            if is_lost(reply):  # reported by Flower, not by the site: ask again
                asked.state = State.UNKNOWN
            else:
                self._take(asked, reply)

    def returning(self, members: Iterable[Member], patience: float) -> list[Member]:
        """Those of `members` that disconnected less than `patience` seconds ago."""
        latest = time.monotonic() - patience
        awaited = [m for m in members if m.state not in (State.READY, State.REFUSED)]
        return [member for member in awaited if member.gone is not None and member.gone > latest]

    def _meet(self, node: int, came: str) -> None:
        try:
            self.registry.meet(node, came)
        except FedotpError as error:
            self._ignored.add(node)
            log.warning("%s: it is ignored", error)

    def _is_next(self, member: Member) -> bool:
        if member.node is None:
            return False
        if member.state is State.ASKED:
            return time.monotonic() - self._asked.get(member.node, 0.0) > _ASK_AGAIN
        return member.state is State.UNKNOWN or (member.state is State.INTRODUCED and self.decided)

    def _hello(self, member: Member) -> Message:
        named = bool(member.name)  # a site without a name has no number yet
        config = ConfigRecord({wire.NUMBER: self.registry.number(member) if named else 0})
        agreement = self.agreement if self.decided and named else replace(self.agreement, classes=())
        agreement.put(config)
        assert member.node is not None
        member.state = State.ASKED
        self._asked[member.node] = time.monotonic()
        return Message(
            RecordDict({wire.CONFIG: config}),
            dst_node_id=member.node,
            message_type=MessageType.QUERY,
            group_id="hello",
        )

    def _take(self, member: Member, reply: Message) -> None:
        """Process a site's answer to hello."""
        try:
            with untrusted_input():
                facts = content_of(reply).config_records.get(wire.CONFIG, ConfigRecord())
                if wire.REFUSED in facts:
                    raise FedotpError(str(facts[wire.REFUSED]))
                member = self.registry.introduce(member, _text(facts, wire.NAME, least=1))
                self._store(member, facts)
        except FedotpError as error:
            self._refuse(member, str(error))

    def _store(self, member: Member, facts: ConfigRecord) -> None:
        """Store what a site reports about itself."""
        if wire.CLASSES in facts:
            member.classes, self._parts[member.name] = _classes(facts), _whole(facts, wire.PART, least=-1)
            member.state = State.INTRODUCED
            return
        n_train, n_test, domain = (
            _whole(facts, wire.TRAIN_IMAGES),
            _whole(facts, wire.TEST_IMAGES),
            _text(facts, wire.DOMAIN),
        )
        member.train_images, member.test_images, member.domain = n_train, n_test, domain or None
        member.steps = _whole(facts, wire.STEPS) if wire.STEPS in facts else 0
        if not member.agreed or not self._begun or self._new_counts:
            member.agreed = n_train
        elif n_train > member.agreed:
            log.warning(
                "site %s reports %d training images; it still counts with the %d it reported first. If the new count "
                "is right, stop the server and resume with --allow-new-counts",
                *(member.name, n_train, member.agreed),
            )
        member.state = State.READY
        log.info("site %s is ready: %d images to train on", member.name, member.train_images)

    def _refuse(self, member: Member, why: str) -> None:
        member.state = State.REFUSED
        log.error("site %s is refused: %s", member.called, one_line(why))

    def _decide(self, introduced: list[Member]) -> None:
        """Fix the sites' numbers and, if they are not given, the class names: those that all sites have."""
        if self.registry.nodes is None:
            self.registry.members.sort(key=lambda member: (self._parts.get(member.name, _LAST), member.name))
        if not self.agreement.classes:
            first = introduced[0]
            if len(first.classes) < 2:
                raise FedotpError(f"site {first.name} has fewer than two classes; name all of them with --classes")
            for member in introduced[1:]:
                if member.classes != first.classes:
                    raise FedotpError(
                        f"the sites have different classes: {first.name} has {listed(first.classes)}, "
                        f"{member.name} has {listed(member.classes)}; name all of them with --classes"
                    )
            self.agreement = replace(self.agreement, classes=first.classes)
        self.decided = True


def _text(facts: ConfigRecord, key: str, least: int = 0) -> str:
    value = facts.get(key)
    if not isinstance(value, str) or not least <= len(value) <= _LONGEST or not value.isprintable():
        raise FedotpError(f"it reports {key} = {value!r}; right is a short text without control characters")
    return value


def _whole(facts: ConfigRecord, key: str, least: int = 0) -> int:
    value = facts.get(key)
    if not isinstance(value, int) or not least <= value <= _MOST_IMAGES:
        raise FedotpError(f"it reports {key} = {value!r}; right is a whole number from {least} to {_MOST_IMAGES}")
    return value


def _classes(facts: ConfigRecord) -> tuple[str, ...]:
    names = facts[wire.CLASSES]
    known = isinstance(names, list) and all(
        isinstance(name, str) and 0 < len(name) <= _LONGEST and name.isprintable() for name in names
    )
    if not known or len(set(names)) < len(names):  # type: ignore[arg-type]
        raise FedotpError(f"it reports classes = {names!r}; right is a list of short names, all different")
    return tuple(names)  # type: ignore[arg-type]
