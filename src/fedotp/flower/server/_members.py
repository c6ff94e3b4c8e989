"""The sites of a federation as its server knows them, and why no update could be taken from one."""

import time
from dataclasses import dataclass, field
from enum import StrEnum

from fedotp._text import one_line
from fedotp.errors import FedotpError

_UNNAMED = "without a name"
_REFUSED = "its update is refused:"


class UpdateRefusedError(FedotpError):
    """There is an update in a site's answer, and it is not in order."""


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
    """How far a site has come in; in this order, but that it may be gone or refused at any time."""

    UNKNOWN = "unknown"
    """Not asked yet, or gone."""
    ASKED = "asked"
    """It was asked who it is, or told all and asked to prepare itself."""
    INTRODUCED = "introduced"
    """It has said who it is."""
    READY = "ready"
    """It has agreed, and may be asked to work."""
    REFUSED = "refused"
    """It does not take part."""


@dataclass(eq=False)
class Member:
    """One site.

    Attributes:
        name: its name; its number is its place in the registry.
        node: the Flower node it is, once it is connected; `came` says since when.
        state: how far it has come in.
        train_images, test_images, domain: as it says itself.
        gone: when it was last seen to be gone (`time.monotonic`); None if it never was.
        agreed: the number of training images that it said when the run began, or it came; it weighs no more.
        accepted: the last round whose update was taken from it.
        faults: how often it was asked and no update could be taken; `refused`: because of what was in it.
        shortened: how often its update moved the prompt so far that it was shortened.
        steps: noisy steps behind all that it has sent, as it says itself, where its images are to be private.
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
        """It was asked, and no update could be taken."""
        self.faults += 1
        self.refused += fault.refused


@dataclass
class Registry:
    """All sites, in the order of their numbers.

    `nodes` are the nodes whose names are certain, because their keys were registered under them; without it (in a
    simulation, or on a SuperLink of one's own) a site is who it says: `newcomers` have not said it yet, and have no
    number; at the nodes `replaced` are sites whose names others have said after them. Sites `without` a part in the run
    (`federation.without`) keep their numbers and are not let in.
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
        """How many sites have keys and a part in the run; 0 where there are no keys."""
        return sum(name not in self.without for name in (self.nodes or {}).values())

    @property
    def with_a_part(self) -> list[Member]:
        """The members that have a part in the run."""
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
        """A node is connected: the site it is, if that is certain, else one to be named."""
        if node in self.replaced:
            raise FedotpError("another site has come under the name of one that is still connected")
        known = self.of_node(node)
        if known is None and self.nodes is not None:
            if node not in self.nodes:
                raise FedotpError("a site is connected whose key is not registered")
            self._require_a_part(self.nodes[node])
            known = next(member for member in self.members if member.name == self.nodes[node])
        if known is None:
            known = Member("")
            self.newcomers.append(known)
        if known.came != came:  # new, or restarted: it may have other images now
            known.gone = time.monotonic() if known.came else known.gone
            known.node, known.came, known.state = node, came, State.UNKNOWN
        return known

    def introduce(self, member: Member, name: str) -> Member:
        """A site says its name. Returns the member that it is, which may be one seen before at another node."""
        self._require_a_part(name)
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

    def _require_a_part(self, name: str) -> None:
        if name in self.without:
            raise FedotpError(f"site {name} has no part in this run (federation.without)")
