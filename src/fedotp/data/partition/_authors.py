"""Partitions of the authors' code where they differ from the paper, and its defect that pairs labels with wrong images.

This reimplements the behaviour with our own draws: it reproduces the sizes, not the same clients.
"""

from collections.abc import Sequence

import numpy as np

from fedotp.data._draws import apportion, dirichlet, generator, shuffled
from fedotp.data._types import Floats, Ints
from fedotp.errors import FedotpError

_WITHIN = 10.0  # Dirichlet's parameter over the classes of a coarse label


def rounded_sizes(n_classes: int, n_clients: int) -> Ints:
    """Return the number of classes of each client (n,): K / n rounded (half to even), the rest to the last."""
    each = round(n_classes / n_clients)
    last = n_classes - each * (n_clients - 1)
    if each == 0 or last <= 0:
        fitting = [n for n in range(1, n_clients) if round(n_classes / n) * (n - 1) < n_classes]
        raise FedotpError(
            f"pathological: with authors.partition = true and round({n_classes} / {n_clients}) = {each} classes per "
            f"client, the last of {n_clients} clients gets {max(last, 0)}; use n_clients = {fitting[-1]}"
        )
    return np.array([each] * (n_clients - 1) + [last], np.int64)


def below_cap(shares: Floats, load: Ints, n_images: int) -> Floats:
    """Set to 0 the shares (n,) of clients that have n_images / n images, unless all would be 0."""
    capped = np.where(load < n_images / len(shares), shares, 0.0)
    return capped if capped.sum() > 0 else shares


def two_level_shares(coarse_of: Ints, n_clients: int, alpha: float, rng: np.random.Generator) -> Floats:
    """Draw the class shares (K, n) of each client's images; columns sum to 1.

    A client draws from Dirichlet(alpha) over coarse labels, and from Dirichlet(10) over the classes of each.
    """
    shares = np.zeros((len(coarse_of), n_clients))
    for client in range(n_clients):
        coarse = dirichlet(rng, alpha, int(coarse_of.max()) + 1)
        for label, share in enumerate(coarse):
            own = np.flatnonzero(coarse_of == label)
            shares[own, client] = share * dirichlet(rng, _WITHIN, len(own))
    return shares


def reseeded_shares(n_train: Ints, n_test: Ints, n_clients: int, alpha: float, seed: int) -> Floats:
    """Draw the shares (K, n) of every class by Dirichlet(alpha), each from a stream restarted with `seed`.

    The stream advances by a shuffle of the class's images, so that classes with the same numbers of training and test
    images (K,) have the same shares.
    """
    sizes = zip(n_train.tolist(), n_test.tolist(), strict=True)
    return np.stack([dirichlet(generator(seed, *size), alpha, n_clients) for size in sizes])


def equal_sizes(n_train: Ints, shares: Floats, at_least: Ints) -> Ints:
    """Return the numbers of images (K, n) by class and client: equal totals, by `shares` (K, n), client by client.

    Exhausted classes are replaced by others, in proportion to the same shares, then to the remaining images. Every
    client gets `at_least` (K, n).
    """
    n_clients = shares.shape[1]
    sizes = apportion(int(n_train.sum()), np.ones(n_clients), at_least=at_least.sum(0))
    counts = at_least.copy()
    for client, size in enumerate(sizes):
        left = n_train - counts.sum(1)
        while (missing := int(size - counts[:, client].sum())) > 0:
            wanted = np.where(left > 0, shares[:, client], 0.0)
            wanted = wanted if wanted.sum() > 0 else left.astype(float)
            taken = np.minimum(apportion(missing, wanted, at_least=np.zeros_like(left)), left)
            counts[:, client] += taken
            left = left - taken
    return counts


def other_images(domains: Ints, clients: Sequence[Ints], *, seed: int, among: Ints | None = None) -> Ints:
    """Return the image (n,) at each of n positions if a client's list selects its labels but not its images.

    A client's j-th label is paired with the j-th image of its domain (of all domains, if it has several). The order of
    images in a domain is drawn from `seed`, as published lists are unordered. `domains` (n,) are those of all
    positions, `clients` (m_i,) the positions of each client, and `among` the candidate images, by default all.
    Positions without a client do not change.
    """
    seen = np.arange(len(domains))
    images = np.arange(len(domains)) if among is None else among
    for rows in clients:
        own = np.unique(domains[rows])
        number = int(own[0]) if len(own) == 1 else 0
        candidates = images[domains[images] == number] if len(own) == 1 else images
        rng = np.random.Generator(np.random.PCG64([seed, number]))
        seen[rows] = shuffled(rng, candidates)[: len(rows)]
    return seen
