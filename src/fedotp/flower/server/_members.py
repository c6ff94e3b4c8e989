"""The sites of a federation as its server knows them, and the faults of their updates."""

import time
from dataclasses import dataclass, field
from enum import StrEnum

from fedotp._text import one_line
from fedotp.errors import FedotpError

_UNNAMED = "without a name"
_REFUSED = "its update is refused:"


class UpdateRefusedError(FedotpError):
    """A site's answer has an update, and the update is invalid."""


@dataclass(frozen=True)
class Fault:
    """One round in which no update was taken from a site, and why; `refused`: because of what was in the update."""

    why: str
    refused: bool = False

    @classmethod
    def of(cls, error: FedotpError) -> "Fault":
        """What was wrong with an answer."""
        return cls(str(error), refused=isinstance(error, UpdateRefusedError))

    @classmethod
    def read(cls, line: str) -> "Fault":
        """Of the line that a run's metrics have kept."""
        return cls(line.removeprefix(_REFUSED).strip(), refused=line.startswith(_REFUSED))

    def __str__(self) -> str:
        """The line for log and metrics."""
        return one_line(f"{_REFUSED} {self.why}" if self.refused else self.why)


class State(StrEnum):
    """A site's progress in registration. It can disconnect or be refused at any time."""

    UNKNOWN = "unknown"
    """Not asked yet, or disconnected."""
    ASKED = "asked"
    """It was asked for its name and classes, or to prepare for the agreement."""
    INTRODUCED = "introduced"
    """It has sent its name and classes."""
    READY = "ready"
    """It has agreed and can train."""
    REFUSED = "refused"
    """It is excluded."""


@dataclass(eq=False)
class Member:
    """One site.

    Attributes:
        name: its name; its number is its place in the registry.
        node: its Flower node, once it is connected; `came`: the time of connection.
        state: its progress in registration.
        train_images, test_images, domain: as the site reports them.
        gone: when it last disconnected (`time.monotonic`); None: never.
        agreed: the number of training images that it reported first; its weight is at most this.
        accepted: the last round whose update was accepted from it.
        faults: how often it was asked and no update could be accepted; `refused`: because of the update's content.
        shortened: how often its update was shortened.
        steps: noisy training steps behind all that it has sent, as the site reports them; for privacy of images.
    """

    name: str
    node: int | None = None
    came: str = ""
    state: State = State.UNKNOWN
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

    def fail(self, fault: Fault) -> None:
        """Count a request without an accepted update."""
        self.faults += 1
        self.refused += fault.refused


@dataclass
class Registry:
    """All sites, in the order of their numbers.

    `nodes` are the nodes with registered keys, with the sites' names. Without it (in a simulation, or on the user's
    SuperLink) the server believes the name that a site sends. `newcomers` have not sent a name yet and have no number.
    The nodes in `replaced` sent a name that another node has sent since. Sites in `without` (`federation.without`) keep
    their numbers and are refused.
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
    def n_registered(self) -> int:
        """How many sites have keys and take part in the run; 0 without keys."""
        return sum(name not in self.without for name in (self.nodes or {}).values())

    @property
    def participants(self) -> list[Member]:
        """The members that take part in the run."""
        return [member for member in self.members if member.name not in self.without]

    def of_node(self, node: int) -> Member | None:
        """The site at a node."""
        return next((member for member in self.everyone if member.node == node), None)

    def name_of(self, node: int) -> str:
        """The name of the site at a node, for messages."""
        member = self.of_node(node)
        return member.called if member else (self.nodes or {}).get(node, _UNNAMED)

    def number(self, member: Member) -> int:
        """The site's number."""
        return self.members.index(member)

    def meet(self, node: int, came: str) -> Member:
        """The site at a node that has connected: by its key, or else a newcomer without a name."""
        if node in self.replaced:
            raise FedotpError("another site has sent the name of this one, which is still connected")
        known = self.of_node(node)
        if known is None and self.nodes is not None:
            if node not in self.nodes:
                raise FedotpError("a site is connected whose key is not registered")
            self._require_participant(self.nodes[node])
            known = next(member for member in self.members if member.name == self.nodes[node])
        if known is None:
            known = Member("")
            self.newcomers.append(known)
        if known.came != came:  # new, or restarted: it may have other images now
            known.gone = time.monotonic() if known.came else known.gone
            known.node, known.came, known.state = node, came, State.UNKNOWN
        return known

    def introduce(self, member: Member, name: str) -> Member:
        """Enter the name that a site has sent. Returns its member, which may have been at another node before."""
        self._require_participant(name)
        if member.name == name:
            return member
        if member.name:
            raise FedotpError(f"the site with the key of {member.name} calls itself {name}; give it its own key")
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
