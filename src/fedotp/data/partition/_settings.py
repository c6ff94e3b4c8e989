"""How a data set is divided among clients: the names of the schemes and their settings."""

import difflib
from dataclasses import dataclass

from fedotp._ranges import MOST, require, require_from
from fedotp.errors import FedotpError

SCHEMES = {
    "iid": "every client has the same share of every class",
    "pathological": "classes shuffled and dealt out, about K / n_clients each, none shared",
    "dirichlet": "each class divided by its own Dirichlet(alpha) draw",
    "domain": "one client per domain",
    "domain-dirichlet": "the clients of a domain divide its classes by Dirichlet(alpha) draws",
    "coarse": "each coarse label belongs to a group of clients, which share its classes evenly",
    "quantity": "same classes everywhere, sizes divided by one Dirichlet(alpha) draw",
}
DEFAULT_ALPHA = {"dirichlet": 0.3, "domain-dirichlet": 0.1, "quantity": 0.3}  # the paper's, where it has the scheme
_ALPHA_RANGE = (1e-6, 1_000_000)  # one client takes all of a class; all take the same


@dataclass(frozen=True)
class PartitionSettings:
    """What determines a partition of a given data set.

    Attributes:
        scheme: who gets which images: iid, pathological, dirichlet, domain, domain-dirichlet, coarse or quantity.
        n_clients: how many clients there are. None: 10; by domain 1 each, with `domain-dirichlet` 3 each, 5 for
            DomainNet; 5 per coarse label.
        alpha: Dirichlet's parameter, for the schemes that draw sizes: the smaller, the more clients differ. None: 0.3,
            with `domain-dirichlet` 0.1.
        shots: how many training images of every class are divided, by domain how many of every class of each domain.
            None: all.
        min_size: training images that every client gets at least, for the schemes that draw sizes.
        seed: draws who gets which images.
    """

    scheme: str
    n_clients: int | None = None
    alpha: float | None = None
    shots: int | None = None
    min_size: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            near = difflib.get_close_matches(self.scheme, SCHEMES, n=1, cutoff=0.0)[0]
            raise FedotpError(f"unknown scheme {self.scheme!r}; did you mean {near!r}? ({', '.join(SCHEMES)})")
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
        """Whether the scheme draws shares from a Dirichlet distribution."""
        return self.scheme in DEFAULT_ALPHA

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
        if self.scheme == "domain" and n_clients != n_groups:
            raise FedotpError(
                f"domain: {n_clients} clients for {n_groups} domains; "
                f"for several clients per domain take domain-dirichlet, or use n_clients = {n_groups}"
            )
        return n_clients
