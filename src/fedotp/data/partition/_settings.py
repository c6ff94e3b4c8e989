"""Settings of partitions, and the registry of schemes: fedotp's, those of imported files and of installed packages."""

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
    "pathological": "about K / n_clients random classes for each client, none in common",
    "dirichlet": "each class divided by its own Dirichlet(alpha) draw",
    "domain": "one client per domain",
    "domain-dirichlet": "the classes of a domain divided among its clients by Dirichlet(alpha) draws",
    "site": "one client per site: the same as `domain`, for data whose domains are sites",
    "coarse": "a group of clients for each coarse label, with equal shares of its classes",
    "quantity": "all classes for every client, sizes divided by one Dirichlet(alpha) draw",
    "given": "a partition from a file: `fedotp run --partition FILE`",
}
DEFAULT_ALPHA = {"dirichlet": 0.3, "domain-dirichlet": 0.1, "quantity": 0.3}  # the paper's, if it has the scheme
BY_DOMAIN = ("domain", "domain-dirichlet", "site")
_ALPHA_RANGE = (1e-6, 1_000_000)  # one client gets all images of a class; all get equal shares

GROUP = "fedotp.partitions"
"""Group of entry points of schemes in installed packages: `name = "package.module:function"`."""

Scheme = Callable[["Dataset", "PartitionSettings"], "Iterable[Client]"]

_brought: dict[str, EntryPoint] = {}


@dataclass(frozen=True)
class PartitionSettings:
    """Settings of a partition.

    Attributes:
        scheme: partition scheme: iid, pathological, dirichlet, domain, domain-dirichlet, site, coarse, quantity, or a
            scheme of your own (--import); "given" for a partition from a file.
        n_clients: number of clients. None for 10; per domain 1, with `domain-dirichlet` 3 (5 for DomainNet); per coarse
            label 5.
        alpha: Dirichlet parameter of schemes that draw sizes; lower values make clients more different. None for 0.3,
            with `domain-dirichlet` 0.1.
        shots: number of training images of every class, by domain of every class of each domain. None for all.
        min_size: minimum number of training images of a client, for schemes that draw sizes.
        seed: seed of the partition.
    """

    scheme: str = "pathological"
    n_clients: int | None = None
    alpha: float | None = None
    shots: int | None = None
    min_size: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES and find_scheme(self.scheme) is None:
            known = list(dict.fromkeys([*SCHEMES, *PARTITIONS, *offered(GROUP)]))
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
            right = f"unset: only for {', '.join(DEFAULT_ALPHA)}, not {self.scheme}"
            require(self.alpha is None, "alpha", self.alpha, right)
            require(self.min_size == 1, "min_size", self.min_size, right)

    @property
    def draws_sizes(self) -> bool:
        """True if the scheme draws shares from a Dirichlet distribution, as external schemes may."""
        return self.scheme in DEFAULT_ALPHA or self.scheme not in SCHEMES

    def clients_for(self, *, n_groups: int, per_group: int) -> int:
        """Return the number of clients of a scheme with `n_groups` groups of, by default, `per_group` clients."""
        n_clients = n_groups * per_group if self.n_clients is None else self.n_clients
        if n_clients % n_groups:
            below = n_clients // n_groups * n_groups
            fitting = " or ".join(str(n) for n in (below, below + n_groups) if n)
            raise FedotpError(
                f"{self.scheme}: n_clients = {n_clients} must be a multiple of the {n_groups} groups; "
                f"use n_clients = {fitting}"
            )
        if self.scheme in ("domain", "site") and n_clients != n_groups:
            raise FedotpError(
                f"{self.scheme}: n_clients = {n_clients} must be {n_groups}, one client per {self.scheme}; "
                f"for several clients per {self.scheme} use domain-dirichlet"
            )
        return n_clients


class Partitions(dict[str, Scheme]):
    """External schemes by name; assignments are checked and cannot replace fedotp's own."""

    def __setitem__(self, name: str, scheme: Scheme) -> None:
        if not callable(scheme):
            raise FedotpError(
                f"PARTITIONS[{name!r}] must be a function of a data set and settings, got {one_line(repr(scheme), 80)}"
            )
        if name in SCHEMES:
            raise FedotpError(f"fedotp already has a partition scheme {name}; rename yours")
        super().__setitem__(name, scheme)


PARTITIONS = Partitions()
"""External schemes: functions of a data set and settings that return clients."""


def find_scheme(name: str) -> Scheme | None:
    """Return the external scheme of this name, imported if necessary; None if there is none."""
    import_named()
    if name not in PARTITIONS and (brought := bring(GROUP, name, "partition scheme")):
        PARTITIONS[name], _brought[name] = brought
    return PARTITIONS.get(name)


def origin_of_scheme(name: str) -> dict[str, str]:
    """Return the origin of an external scheme for records: package, module, file and its SHA-256."""
    scheme = find_scheme(name)
    return {} if scheme is None else origin(_brought.get(name)) | source_of(getattr(scheme, "__module__", ""))
