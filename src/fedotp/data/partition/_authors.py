"""The authors' code where it differs from the paper, for comparison with it: how it divides classes and images, and a
published defect that pairs labels with other images.

Written from what it does, not from it: the draws are ours, so its sizes come back, not its very clients.
"""

from collections.abc import Sequence

import numpy as np

from fedotp.data._draws import apportion, dirichlet, generator, shuffled
from fedotp.data._types import Floats, Ints
from fedotp.errors import FedotpError

_WITHIN = 10.0  # Dirichlet's parameter over the classes of a coarse label


def rounded_sizes(n_classes: int, n_clients: int) -> Ints:
    """Classes of each client (n,): K / n rounded (half to even), the rest to the last."""
    each = round(n_classes / n_clients)
    last = n_classes - each * (n_clients - 1)
    if each == 0 or last <= 0:
        fitting = [n for n in range(1, n_clients) if round(n_classes / n) * (n - 1) < n_classes]
        raise FedotpError(
            f"pathological: with authors.partition = true {n_clients} clients of round({n_classes} / {n_clients}) = "
            f"{each} classes leave {max(last, 0)} for the last; use n_clients = {fitting[-1]}"
        )
    return np.array([each] * (n_clients - 1) + [last], np.int64)


def below_cap(shares: Floats, load: Ints, n_images: int) -> Floats:
    """The shares (n,) of a class, none for whom already has n_images / n images; as given where that leaves none."""
    capped = np.where(load < n_images / len(shares), shares, 0.0)
    return capped if capped.sum() > 0 else shares


def two_level_shares(coarse_of: Ints, n_clients: int, alpha: float, rng: np.random.Generator) -> Floats:
    """What share of each client's images is of each class (K, n), columns summing to 1.

    A client draws from its own Dirichlet(alpha) over coarse labels, and for each of these from Dirichlet(10) over its
    classes.
    """
    shares = np.zeros((len(coarse_of), n_clients))
    for client in range(n_clients):
        coarse = dirichlet(rng, alpha, int(coarse_of.max()) + 1)
        for label, share in enumerate(coarse):
            own = np.flatnonzero(coarse_of == label)
            shares[own, client] = share * dirichlet(rng, _WITHIN, len(own))
    return shares


def reseeded_shares(n_train: Ints, n_test: Ints, n_clients: int, alpha: float, seed: int) -> Floats:
    """The shares (K, n) of every class by Dirichlet(alpha), each from a stream that begins anew with `seed`.

    What a shuffle of the class's images leaves of the stream depends on how many there are: classes with as many
    training and test images (K,) have the same shares.
    """
    sizes = zip(n_train.tolist(), n_test.tolist(), strict=True)
    return np.stack([dirichlet(generator(seed, *size), alpha, n_clients) for size in sizes])


def equal_sizes(n_train: Ints, shares: Floats, at_least: Ints) -> Ints:
    """Images (K, n) by class and client: as many for each client, in its `shares` (K, n), client after client.

    What is not there any more is made up by what is left, in proportion to the same shares, then to what there is.
    `at_least` (K, n) is kept for everybody.
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
    """Which image (n,) stands at each of n positions when a client's list selects its labels but not its images.

    Its j-th label is that of its own j-th image; beside it stands the j-th image of its domain (of all, where its own
    are of several), however its list goes. Which images are first is drawn from `seed`, once per domain: published
    lists are in no order. `domains` (n,) are those of all positions, `clients` (m_i,) the positions of each client;
    `among` are the positions that count as images, all if not given. Where no client is, nothing changes.
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
