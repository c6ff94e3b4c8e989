"""How a data set is divided among clients: the names of the schemes, the user's own among them (of files that he names,
of packages that are installed), and their settings.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

from fedotp._imports import bring, import_named, offered, origin, source_of
from fedotp._text import one_line
from fedotp._values import MOST, require, require_from
from fedotp.errors import FedotpError, nearest

if TYPE_CHECKING:
    from fedotp.data._dataset import Dataset
    from fedotp.data.partition._partition import Client

SCHEMES = {
    "iid": "every client has the same share of every class",
    "pathological": "classes shuffled and dealt out, about K / n_clients each, none shared",
    "dirichlet": "each class divided by its own Dirichlet(alpha) draw",
    "domain": "one client per domain",
    "domain-dirichlet": "the clients of a domain divide its classes by Dirichlet(alpha) draws",
    "site": "one client per site: what `domain` does, for data whose domains are places",
    "coarse": "each coarse label belongs to a group of clients, which share its classes evenly",
    "quantity": "same classes everywhere, sizes divided by one Dirichlet(alpha) draw",
    "given": "as a file says, `fedotp run --partition FILE`: a partition made elsewhere",
}
DEFAULT_ALPHA = {"dirichlet": 0.3, "domain-dirichlet": 0.1, "quantity": 0.3}  # the paper's, where it has the scheme
BY_DOMAIN = ("domain", "domain-dirichlet", "site")
_ALPHA_RANGE = (1e-6, 1_000_000)  # one client takes all of a class; all take the same

GROUP = "fedotp.partitions"
"""The entry points by which an installed package brings schemes: `name = "package.module:function"`."""

Scheme = Callable[["Dataset", "PartitionSettings"], "Iterable[Client]"]

_brought: dict[str, EntryPoint] = {}


@dataclass(frozen=True)
class PartitionSettings:
    """What determines a partition of a given data set.

    Attributes:
        scheme: who gets which images: iid, pathological, dirichlet, domain, domain-dirichlet, site, coarse or
            quantity, or one of your own (--import); given for a partition made elsewhere.
        n_clients: how many clients there are. None: 10; by domain 1 each, with `domain-dirichlet` 3 each, 5 for
            DomainNet; 5 per coarse label.
        alpha: Dirichlet's parameter, for the schemes that draw sizes: the smaller, the more clients differ. None: 0.3,
            with `domain-dirichlet` 0.1.
        shots: how many training images of every class are divided, by domain how many of every class of each domain.
            None: all.
        min_size: training images that every client gets at least, for the schemes that draw sizes.
        seed: draws who gets which images.
    """

    scheme: str = "pathological"
    n_clients: int | None = None
    alpha: float | None = None
    shots: int | None = None
    min_size: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES and find_scheme(self.scheme) is None:
            known = [*SCHEMES, *own_schemes()]
            meant = f"; did you mean {near!r}?" if (near := nearest(self.scheme, known)) else ""
            raise FedotpError(
                f"unknown scheme {self.scheme!r}{meant} ({', '.join(known)}, or one of your own with --import FILE.py)"
            )
        for key in ("n_clients", "shots", "min_size"):
            if (value := getattr(self, key)) is not None:
                require_from(1, MOST, key, value)
        if self.alpha is not None:
            require_from(*_ALPHA_RANGE, "alpha", self.alpha, ", for example 0.3")
        require(self.seed >= 0, "seed", self.seed, "0 or more")
        if not self.draws_sizes:
            right = f"left out: it is for {', '.join(DEFAULT_ALPHA)}, not {self.scheme}"
            require(self.alpha is None, "alpha", self.alpha, right)
            require(self.min_size == 1, "min_size", self.min_size, right)

    @property
    def draws_sizes(self) -> bool:
        """Whether the scheme draws shares from a Dirichlet distribution; one of the user's own may."""
        return self.scheme in DEFAULT_ALPHA or self.scheme not in SCHEMES

    def clients_for(self, *, n_groups: int, per_group: int) -> int:
        """Return the number of clients of a scheme with `n_groups` groups of usually `per_group` clients."""
        n_clients = n_groups * per_group if self.n_clients is None else self.n_clients
        if n_clients % n_groups:
            below = n_clients // n_groups * n_groups
            fitting = " or ".join(str(n) for n in (below, below + n_groups) if n)
            raise FedotpError(
                f"{self.scheme}: {n_clients} clients do not divide evenly among {n_groups} groups; "
                f"use n_clients = {fitting}"
            )
        if self.scheme in ("domain", "site") and n_clients != n_groups:
            raise FedotpError(
                f"{self.scheme}: {n_clients} clients for {n_groups} {self.scheme}s; "
                f"for several clients per {self.scheme} take domain-dirichlet, or use n_clients = {n_groups}"
            )
        return n_clients


class Partitions(dict[str, Scheme]):
    """Schemes by name; what is assigned is looked at, and fedotp's own stay."""

    def __setitem__(self, name: str, scheme: Scheme) -> None:
        if not callable(scheme):
            raise FedotpError(
                f"PARTITIONS[{name!r}] must be a function of a data set and settings, not {one_line(repr(scheme), 80)}"
            )
        if name in SCHEMES:
            raise FedotpError(f"fedotp has a partition scheme {name} of its own; give yours another name")
        super().__setitem__(name, scheme)


PARTITIONS = Partitions()
"""Schemes that are not fedotp's own: functions of a data set and settings that return its clients."""


def find_scheme(name: str) -> Scheme | None:
    """The scheme of that name, imported if need be; None if there is none, or it is fedotp's own."""
    import_named()
    if name not in PARTITIONS and (brought := bring(GROUP, name, "partition scheme")):
        PARTITIONS[name], _brought[name] = brought
    return PARTITIONS.get(name)


def own_schemes() -> list[str]:
    """The names of all of them, those of installed packages included, which are not imported for it."""
    import_named()
    return list(dict.fromkeys([*PARTITIONS, *offered(GROUP)]))


def origin_of_scheme(name: str) -> dict[str, str]:
    """Where a scheme that is not fedotp's own came from, for records: package, module, file and its SHA-256."""
    scheme = find_scheme(name)
    return {} if scheme is None else origin(_brought.get(name)) | source_of(getattr(scheme, "__module__", ""))
