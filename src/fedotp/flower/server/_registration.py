"""The sites of a federation as its server knows them, and their registration: name, classes, agreement, images."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedotp._system import Interrupt
from fedotp._text import one_line
from fedotp.errors import FedotpError, TransientError, listed
from fedotp.flower import _wire as wire
from fedotp.flower._agreement import Agreement
from fedotp.flower._events import record
from fedotp.flower._wire import facts_of, untrusted_input
from fedotp.flower.link import Transport, is_lost
from fedotp.flower.server._server_settings import ServerSettings

log = logging.getLogger("fedotp.server")

_PAUSE = 0.5
_REMIND = 30.0  # seconds between log lines about missing sites
_ASK_AGAIN = 120.0  # seconds before a request is repeated; a site repeats its answer quickly
_SETTLED = 3.0  # seconds without a newcomer after which all sites are assumed present, if there is no list of sites
_LONGEST = 100  # characters of a name or a domain
_MOST_IMAGES = 10**9
_UNNAMED = "without a name"
_REFUSED = "its update is refused: "


class UpdateRefusedError(FedotpError):
    """Raised for an answer with an invalid update."""


def fault_of(error: FedotpError) -> str:
    """Return the reason why no update of a site was accepted in a round, given the error in its answer."""
    return one_line(f"{_REFUSED}{error}" if isinstance(error, UpdateRefusedError) else error)


def is_refusal(fault: str) -> bool:
    """True for a fault of the update's content."""
    return fault.startswith(_REFUSED)


class State(StrEnum):
    """A site's progress in registration. It can disconnect or be refused at any time."""

    UNKNOWN = "not connected"
    """Not asked yet, or disconnected."""
    ASKED = "asked"
    """Asked for its name and classes, or to prepare for the agreement."""
    INTRODUCED = "introduced"
    """Has sent its name and classes."""
    READY = "ready"
    """Has agreed and can train."""
    REFUSED = "refused"
    """Excluded."""


@dataclass(eq=False)
class Member:
    """One site.

    Attributes:
        name: its name; its number is its index in the registry.
        node: its Flower node while connected; `came`: the time of connection.
        state: its progress in registration; `asked`: time of the last request (`time.monotonic`).
        part: the number of its part of a common data set; -1 for its own images.
        train_images, test_images, domain: as the site reports them.
        gone: time of its last disconnection (`time.monotonic`); None: never.
        agreed: the number of training images it reported first, an upper limit of its weight.
        accepted: the last round with an accepted update.
        faults: number of requests without an accepted update; `refused`: of these, because of the update's content.
        shortened: number of clipped updates.
        steps: total number of noisy training steps it reports, for privacy of images.
    """

    name: str
    node: int | None = None
    came: str = ""
    state: State = State.UNKNOWN
    asked: float = 0.0
    part: int = -1
    classes: tuple[str, ...] = ()
    train_images: int = 0
    test_images: int = 0
    agreed: int = 0
    domain: str | None = None
    gone: float | None = None
    accepted: int = 0
    faults: int = 0
    refused: int = 0
    shortened: int = 0
    steps: int = 0

    @property
    def called(self) -> str:
        """Its name, for messages."""
        return self.name or _UNNAMED

    def fail(self, fault: str) -> None:
        """Count a request without an accepted update."""
        self.faults += 1
        self.refused += is_refusal(fault)


@dataclass
class Registry:
    """All sites, in the order of their numbers.

    `nodes` maps nodes with registered keys to names. Without it (in a simulation, or on the user's SuperLink) the names
    that sites send are trusted. `newcomers` have neither name nor number yet. The nodes in `replaced` sent a name that
    another node has sent since. Sites in `without` (`federation.without`) keep their numbers and are refused.
    """

    members: list[Member] = field(default_factory=list)
    nodes: dict[int, str] | None = None
    newcomers: list[Member] = field(default_factory=list)
    replaced: set[int] = field(default_factory=set)
    without: tuple[str, ...] = ()

    @property
    def everyone(self) -> list[Member]:
        """Members and newcomers."""
        return [*self.members, *self.newcomers]

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(member.name for member in self.members)

    @property
    def participants(self) -> list[Member]:
        """The members that participate in the run."""
        return [member for member in self.members if member.name not in self.without]

    def of_node(self, node: int) -> Member | None:
        """Return the site at a node."""
        return next((member for member in self.everyone if member.node == node), None)

    def name_of(self, node: int) -> str:
        """Return the name of the site at a node, for messages."""
        member = self.of_node(node)
        return member.called if member else (self.nodes or {}).get(node, _UNNAMED)

    def number(self, member: Member) -> int:
        """Return the site's number."""
        return self.members.index(member)

    def meet(self, node: int, came: str) -> Member:
        """Return the site at a connected node: by its key, or else a newcomer without a name."""
        if node in self.replaced:
            raise FedotpError("a connected site has the name of a newer one")
        known = self.of_node(node)
        if known is None and self.nodes is not None:
            if node not in self.nodes:
                raise FedotpError("a site has connected with an unregistered key")
            self._require_participant(self.nodes[node])
            known = next((member for member in self.members if member.name == self.nodes[node]), None)
            if known is None:  # its key was signed during the run
                known = Member(self.nodes[node])
                self.members.append(known)
        if known is None:
            known = Member("")
            self.newcomers.append(known)
        if known.came != came:  # new, or restarted: its images may have changed
            known.gone = time.monotonic() if known.came else known.gone
            known.node, known.came, known.state = node, came, State.UNKNOWN
        return known

    def introduce(self, member: Member, name: str) -> Member:
        """Enter the name that a site has sent; return its member, which may have been at another node before."""
        self._require_participant(name)
        if member.name == name:
            return member
        if member.name:
            raise FedotpError(f"site {name} uses the key of site {member.name}; give it its own key")
        known = next((other for other in self.members if other.name == name), None)
        self.newcomers.remove(member)
        if known is None:
            member.name = name
            self.members.append(member)
            return member
        if known.node is not None:
            self.replaced.add(known.node)
        known.node, known.came, known.state = member.node, member.came, member.state
        return known

    def _require_participant(self, name: str) -> None:
        if name in self.without:
            raise FedotpError(f"site {name} is excluded from this run (federation.without)")


class Registration:
    """Registers sites as they connect; waits for them only at the start of a run.

    A site is first asked for its name and classes if they are unknown. Then it receives the agreement and its number,
    prepares, and is ready, or answers why it cannot participate.
    """

    def __init__(
        self, grid: Grid, registry: Registry, agreement: Agreement, settings: ServerSettings, *, begun: bool = False
    ) -> None:
        """`agreement` may still be without classes; in a run that has `begun`, numbers and classes are fixed."""
        self.transport = Transport(grid, registry.name_of, registry.nodes)
        self.registry = registry
        self.agreement = agreement
        self.settings = settings
        self.decided = begun or (bool(agreement.classes) and registry.nodes is not None)
        self._begun = begun
        self._waiting: dict[str, int] = {}
        self._ignored: set[int] = set()

    def gather(self, interrupt: Interrupt | None = None) -> None:
        """Wait until the sites required by the settings are ready, or the user stops the server."""
        settings, start = self.settings, time.monotonic()
        reminded = newcomer = start
        n_seen = 0
        while True:
            if interrupt is not None and interrupt.wanted:
                raise KeyboardInterrupt
            self.step()
            members = [member for member in self.registry.everyone if member.node is not None]
            if len(members) != n_seen:
                n_seen, newcomer = len(members), time.monotonic()
            registered = set((self.registry.nodes or {}).values()) - set(self.registry.without)
            wanted = settings.min_sites or len(registered)
            settled = wanted or (n_seen and time.monotonic() - newcomer > _SETTLED)
            introduced, ready, refused = (
                [member for member in members if member.state is state]
                for state in (State.INTRODUCED, State.READY, State.REFUSED)
            )
            if refused and len(refused) == max(wanted, n_seen):
                raise FedotpError("every site was refused; see the log for reasons")
            if settings.min_sites == 0:
                wanted = (wanted or n_seen) - len(refused)
            if not self.decided and introduced and settled and len(introduced) >= wanted:
                self._decide(introduced)
            elif self.decided and ready and len(ready) >= wanted:
                self._begun = True
                return
            now = time.monotonic()
            if settings.start_timeout and now - start > settings.start_timeout:
                raise TransientError(
                    f"only {len(ready) + len(introduced)} of {wanted} sites connected within "
                    f"{settings.start_timeout:g} s; increase start-timeout, or decrease min-sites"
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
            if node in self._ignored:
                continue
            try:
                self.registry.meet(node, came)
            except FedotpError as error:
                self._ignored.add(node)
                log.warning("%s; ignoring it", error)
        for member in self.registry.everyone:
            if member.node is not None and member.node not in online:
                lost = self.transport.lost_since.pop(member.node, None)
                if lost is None and member.state not in (State.UNKNOWN, State.REFUSED):
                    log.warning("site %s disconnected", member.called)
                if member.state not in (State.UNKNOWN, State.REFUSED):
                    record("disconnected", site=member.called)
                member.gone = time.monotonic() if lost is None else lost
                refused = self.registry.nodes is not None and member.node not in self.registry.nodes
                member.node, member.came, member.state = None, "", State.REFUSED if refused else State.UNKNOWN
        self.registry.newcomers = [member for member in self.registry.newcomers if member.node is not None]
        hellos = [self._hello(member) for member in self.registry.everyone if self._is_next(member)]
        self._waiting |= self.transport.send(hellos)
        self._waiting = {number: node for number, node in self._waiting.items() if node in online}
        for node, reply in self.transport.collect(self._waiting).items():
            asked = self.registry.of_node(node)
            if asked is None or asked.state is not State.ASKED:
                continue
            if is_lost(reply):  # reported by Flower, not by the site: retry
                asked.state = State.UNKNOWN
            else:
                self._take(asked, reply)

    def returning(self, members: Iterable[Member], patience: float) -> list[Member]:
        """Return those of `members` that disconnected less than `patience` seconds ago."""
        latest = time.monotonic() - patience
        awaited = [m for m in members if m.state not in (State.READY, State.REFUSED)]
        return [member for member in awaited if member.gone is not None and member.gone > latest]

    def _is_next(self, member: Member) -> bool:
        if member.node is None:
            return False
        if member.state is State.ASKED:
            return time.monotonic() - member.asked > _ASK_AGAIN
        return member.state is State.UNKNOWN or (member.state is State.INTRODUCED and self.decided)

    def _hello(self, member: Member) -> Message:
        named = bool(member.name)  # a site without a name has no number yet
        config = ConfigRecord({wire.NUMBER: self.registry.number(member) if named else 0})
        agreement = self.agreement if self.decided and named else replace(self.agreement, classes=())
        agreement.put(config)
        assert member.node is not None
        member.state, member.asked = State.ASKED, time.monotonic()
        facts = {"run": agreement.run, "round": 0, "agreement": agreement.digest, "digest": ""}
        record("order", kind="hello", site=member.called, **facts)
        content, kind = RecordDict({wire.CONFIG: config}), MessageType.QUERY
        return Message(content, dst_node_id=member.node, message_type=kind, group_id="hello")

    def _take(self, member: Member, reply: Message) -> None:
        try:
            with untrusted_input():
                facts = facts_of(reply, refusal="")
                member = self.registry.introduce(member, _text(facts, wire.NAME, least=1))
                self._store(member, facts)
        except FedotpError as error:
            member.state = State.REFUSED
            log.error("site %s was refused: %s", member.called, one_line(error))
            record("order-refused", site=member.called, reason=one_line(error))

    def _store(self, member: Member, facts: ConfigRecord) -> None:
        if wire.CLASSES in facts:
            member.classes, member.part = _classes(facts), _whole(facts, wire.PART, least=-1)
            member.state = State.INTRODUCED
            return
        n_train, n_test = (_whole(facts, key) for key in (wire.TRAIN_IMAGES, wire.TEST_IMAGES))
        domain = _text(facts, wire.DOMAIN)
        member.train_images, member.test_images, member.domain = n_train, n_test, domain or None
        member.steps = _whole(facts, wire.STEPS) if wire.STEPS in facts else 0
        if not member.agreed or not self._begun or self.settings.allow_new_counts:
            member.agreed = n_train
        elif n_train > member.agreed:
            log.warning(
                "site %s reports %d training images; its weight stays limited to the %d it reported first. If the new "
                "count is right, stop the server and resume with --allow-new-counts",
                *(member.name, n_train, member.agreed),
            )
        member.state = State.READY
        log.info("site %s ready: %d training images", member.name, member.train_images)
        record("ready", site=member.name, images=member.train_images)

    def _decide(self, introduced: list[Member]) -> None:
        """Fix the sites' numbers and, if not given, the class names, which must be equal at all sites."""
        if self.registry.nodes is None:
            self.registry.members.sort(key=lambda member: (member.part, member.name))
        if not self.agreement.classes:
            first = introduced[0]
            if len(first.classes) < 2:
                raise FedotpError(f"site {first.name} has fewer than two classes; list all classes with --classes")
            for member in introduced[1:]:
                if member.classes != first.classes:
                    raise FedotpError(
                        f"the sites have different classes: {first.name} has {listed(first.classes)}, "
                        f"{member.name} has {listed(member.classes)}; list all classes with --classes"
                    )
            self.agreement = replace(self.agreement, classes=first.classes)
        self.decided = True


def _text(facts: ConfigRecord, key: str, least: int = 0) -> str:
    value = facts.get(key)
    if not isinstance(value, str) or not least <= len(value) <= _LONGEST or not value.isprintable():
        raise FedotpError(f"{key} must be a short text without control characters, got {value!r}")
    return value


def _whole(facts: ConfigRecord, key: str, least: int = 0) -> int:
    value = facts.get(key)
    if not isinstance(value, int) or not least <= value <= _MOST_IMAGES:
        raise FedotpError(f"{key} must be an integer from {least} to {_MOST_IMAGES}, got {value!r}")
    return value


def _classes(facts: ConfigRecord) -> tuple[str, ...]:
    names = facts[wire.CLASSES]
    known = isinstance(names, list) and all(
        isinstance(name, str) and 0 < len(name) <= _LONGEST and name.isprintable() for name in names
    )
    if not known or len(set(names)) < len(names):  # type: ignore[arg-type]
        raise FedotpError(f"classes must be a list of unique short names, got {names!r}")
    return tuple(names)  # type: ignore[arg-type]
