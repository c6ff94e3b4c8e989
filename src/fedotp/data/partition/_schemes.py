"""Partition schemes.

A scheme forms groups of clients with a pool of images each, and draws the share of each class of the pool for each
client of the group. `_deal` does the rest:

1. Every client gets a *seat*: `min_size` training images and one test image of one class, the class with its largest
   expected share among those with free seats. So no client is empty, and no image is repeated.
2. The rest of every class is divided by largest remainders, so that counts follow the drawn shares.
3. The test images of a class are divided in proportion to its training images: a client's test data have the label
   distribution of its training data, as in the paper.

Random draws from one PCG64 stream, in this order: the class order (pathological only); then, group by group, the shares
class by class, and for every class in label order the shuffles of its training and test images. The paper's code always
shuffles the classes with seed 2023; here it is the run's seed. With `authors`, `_authors` forms the groups and draws
the counts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedotp._authors import DIVIDED
from fedotp.data._dataset import Dataset
from fedotp.data._draws import apportion, dirichlet, generator, shuffled
from fedotp.data._types import Floats, Ints
from fedotp.data.partition._authors import below_cap, equal_sizes, reseeded_shares, rounded_sizes, two_level_shares
from fedotp.data.partition._grouped import deal_whole, require_whole
from fedotp.data.partition._partition import Client, Partition, require_sound_clients
from fedotp.data.partition._settings import BY_DOMAIN, DEFAULT_ALPHA, PartitionSettings, find_scheme
from fedotp.errors import FedotpError

Rng = np.random.Generator


@dataclass(frozen=True, eq=False)
class _Group:
    """`n` clients with names from `stem` and their images `train` and `test`, positions in the data set's splits."""

    title: str
    stem: str
    n: int
    domain: str | None
    train: Ints
    test: Ints


def make_partition(dataset: Dataset, settings: PartitionSettings, *, authors: bool = False) -> Partition:
    """Partition `dataset`; the same settings give the same partition on every platform.

    With `authors` the schemes pathological, dirichlet and domain-dirichlet are those of the authors' code (`_authors`).
    """
    if (own := find_scheme(settings.scheme)) is not None:
        clients = tuple(own(dataset, settings))
        require_sound_clients(dataset, clients, settings)
        return Partition(dataset.name, dataset.digest, replace(settings, n_clients=len(clients)), clients)
    authors = authors and settings.scheme in DIVIDED
    form_groups, draw_shares, n_groups, per_group = _scheme(dataset, settings, authors)
    n_clients = settings.clients_for(n_groups=n_groups, per_group=per_group)
    alpha = DEFAULT_ALPHA.get(settings.scheme) if settings.alpha is None else settings.alpha
    settings = replace(settings, n_clients=n_clients, alpha=alpha)
    _require_shots(dataset, settings)
    rng = generator(settings.seed)
    dealt: list[Client] = []
    groups = list(form_groups(dataset, n_clients, rng))
    if dataset.groups:
        if authors:
            raise FedotpError(
                f"{settings.scheme}: authors.partition must be false with groups, as the authors' code divides groups "
                "among clients"
            )
        require_whole(dataset, [(group.title, group.train, group.test) for group in groups], settings.scheme)
    for group in groups:
        room = _require_room(dataset, group, settings, n_groups)
        shares = draw_shares(alpha or 0.0, len(dataset.classes), group.n, rng)
        if dataset.groups:
            dealt += _deal_whole(dataset, group, shares, settings, rng)
        else:
            dealt += _deal(dataset, group, shares, room, settings, rng, authors=authors and settings.draws_sizes)
    return Partition(dataset.name, dataset.digest, settings, tuple(dealt))


# Groups ---------------------------------------------------------------------------------------------------


def _one_group(dataset: Dataset, n_clients: int, rng: Rng) -> Iterator[_Group]:
    everything = np.ones(len(dataset.classes), bool)
    yield _class_group(dataset, dataset.name, "client", n_clients, everything)


def _domain_groups(dataset: Dataset, n_clients: int, rng: Rng) -> Iterator[_Group]:
    for d, domain in enumerate(dataset.domains):
        pools = (np.flatnonzero(split.domains == d) for split in (dataset.train, dataset.test))
        yield _Group(f"domain {domain}", domain, n_clients // len(dataset.domains), domain, *pools)


def _coarse_groups(dataset: Dataset, n_clients: int, rng: Rng) -> Iterator[_Group]:
    for c, coarse in enumerate(dataset.coarse_classes):
        n = n_clients // len(dataset.coarse_classes)
        yield _class_group(dataset, f"coarse label {coarse}", coarse, n, np.array(dataset.coarse_of) == c)


def _pathological_groups(dataset: Dataset, n_clients: int, rng: Rng, *, authors: bool) -> Iterator[_Group]:
    n_classes = len(dataset.classes)
    if n_clients > n_classes and not authors:
        raise FedotpError(
            f"pathological: {dataset.name} has only {n_classes} classes for {n_clients} clients, which must not share "
            f"classes; use n_clients <= {n_classes}"
        )
    parts = np.cumsum(rounded_sizes(n_classes, n_clients))[:-1] if authors else n_clients
    dealt = np.array_split(shuffled(rng, np.arange(n_classes)), parts)
    for name, classes in zip(_numbered("client", n_clients), dealt, strict=True):
        yield _class_group(dataset, name, name, 1, np.isin(np.arange(n_classes), classes))


def _class_group(dataset: Dataset, title: str, stem: str, n: int, wanted: NDArray[np.bool_]) -> _Group:
    """Pool all images of the classes marked in `wanted` (K,)."""
    domain = dataset.domains[0] if len(dataset.domains) == 1 else None
    pools = (np.flatnonzero(wanted[split.labels]) for split in (dataset.train, dataset.test))
    return _Group(title, stem, n, domain, *pools)


def _numbered(stem: str, n: int) -> list[str]:
    width = len(str(n - 1))
    return [f"{stem}-{i:0{width}d}" for i in range(n)] if n > 1 else [stem]


# Shares: (K, n) weights, one row per class ----------------------------------------------------------------


def _even_shares(alpha: float, n_classes: int, n: int, rng: Rng) -> Floats:
    return np.full((n_classes, n), 1.0 / n)


def _shares_by_class(alpha: float, n_classes: int, n: int, rng: Rng) -> Floats:
    return np.stack([dirichlet(rng, alpha, n) for _ in range(n_classes)])


def _shares_by_size(alpha: float, n_classes: int, n: int, rng: Rng) -> Floats:
    return np.tile(dirichlet(rng, alpha, n), (n_classes, 1))


# Schemes --------------------------------------------------------------------------------------------------

_PER_DOMAIN = {"domainnet": 5}  # clients per domain in the paper; 3 for Office-Caltech10

_FormGroups = Callable[[Dataset, int, Rng], Iterator[_Group]]
_DrawShares = Callable[[float, int, int, Rng], Floats]


def _scheme(dataset: Dataset, settings: PartitionSettings, authors: bool) -> tuple[_FormGroups, _DrawShares, int, int]:
    """Return the functions that form groups and draw shares, the number of groups and default clients per group."""
    name = settings.scheme
    n_domains, n_coarse = len(dataset.domains), len(dataset.coarse_classes)
    if name == "given":
        raise FedotpError(f"given: needs the partition of {dataset.name} as --partition FILE; or use iid")
    if name in BY_DOMAIN and n_domains == 1:
        one = "no sites (a column site, or a folder per site)" if name == "site" else "only one domain"
        raise FedotpError(f"{name}: {dataset.name} has {one}; use iid, pathological or dirichlet")
    if name == "coarse" and not n_coarse:
        raise FedotpError(f"coarse: {dataset.name} has no coarse labels (as cifar100 has); use pathological")
    schemes: dict[str, tuple[_FormGroups, _DrawShares, int, int]] = {
        "iid": (_one_group, _even_shares, 1, 10),
        "pathological": (partial(_pathological_groups, authors=authors), _even_shares, 1, 10),
        "dirichlet": (_one_group, _shares_by_class, 1, 10),
        "domain": (_domain_groups, _even_shares, n_domains, 1),
        "domain-dirichlet": (_domain_groups, _shares_by_class, n_domains, _PER_DOMAIN.get(dataset.name, 3)),
        "site": (_domain_groups, _even_shares, n_domains, 1),
        "coarse": (_coarse_groups, _even_shares, n_coarse, 5),
        "quantity": (_one_group, _shares_by_size, 1, 10),
    }
    return schemes[name]


# Dealing --------------------------------------------------------------------------------------------------


def _deal(
    dataset: Dataset, group: _Group, shares: Floats, room: Ints, settings: PartitionSettings, rng: Rng, *, authors: bool
) -> list[Client]:
    """Divide the group's images by `shares` (K, n), with `room` (K,) seats."""
    n = shares.shape[1]
    train_labels, test_labels = dataset.train.labels[group.train], dataset.test.labels[group.test]
    n_train, n_test = _to_divide(dataset, group, settings)
    alpha = settings.alpha or 0.0
    two_level = authors and settings.scheme == "dirichlet" and bool(dataset.coarse_of)
    if two_level:
        shares = two_level_shares(np.array(dataset.coarse_of), n, alpha, rng)
    elif authors and settings.scheme == "domain-dirichlet":
        shares = reseeded_shares(n_train, n_test, n, alpha, settings.seed)
    seats = _take_seats(shares * n_train[:, None], room)  # (K, n)
    fixed = equal_sizes(n_train, shares, settings.min_size * seats) if two_level else None  # (K, n)

    held: list[tuple[list[Ints], list[Ints]]] = [([], []) for _ in range(n)]
    load, test_load = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for k in np.flatnonzero(n_train):
        if fixed is None:
            share = below_cap(shares[k], load, int(n_train.sum())) if authors else shares[k]
            counts = apportion(n_train[k], share, at_least=settings.min_size * seats[k], load=load)
        else:
            counts = fixed[k]
        test_counts = apportion(n_test[k], counts.astype(float), at_least=seats[k], load=test_load)
        load, test_load = load + counts, test_load + test_counts
        train = np.split(shuffled(rng, group.train[train_labels == k])[: n_train[k]], np.cumsum(counts)[:-1])
        test = np.split(shuffled(rng, group.test[test_labels == k]), np.cumsum(test_counts)[:-1])
        for c in range(n):
            held[c][0].append(train[c])
            held[c][1].append(test[c])
    return [
        Client(name, group.domain, np.sort(np.concatenate(train_rows)), np.sort(np.concatenate(test_rows)))
        for name, (train_rows, test_rows) in zip(_numbered(group.stem, n), held, strict=True)
    ]


def _deal_whole(dataset: Dataset, group: _Group, shares: Floats, settings: PartitionSettings, rng: Rng) -> list[Client]:
    """Divide the group's images without splitting patients or parts, approximating the shares."""
    labels = dataset.train.labels[group.train]
    n_train, _ = _to_divide(dataset, group, settings)
    chosen = [shuffled(rng, group.train[labels == k])[: n_train[k]] for k in range(len(n_train))]
    try:
        held = deal_whole(dataset, np.concatenate(chosen), group.test, shares, settings.min_size, rng)
    except FedotpError as error:
        raise FedotpError(f"{settings.scheme}: {group.title}: {error}") from error
    return [
        Client(name, group.domain, np.sort(train), np.sort(test))
        for name, (train, test) in zip(_numbered(group.stem, group.n), held, strict=True)
    ]


def _to_divide(dataset: Dataset, group: _Group, settings: PartitionSettings) -> tuple[Ints, Ints]:
    """Count the training and test images of each class that a group divides: (K,) each."""
    pools = ((dataset.train, group.train), (dataset.test, group.test))
    n_train, n_test = (np.bincount(split.labels[rows], minlength=len(dataset.classes)) for split, rows in pools)
    return n_train if settings.shots is None else np.minimum(n_train, settings.shots), n_test


def _take_seats(expected: Floats, room: Ints) -> Ints:
    """Assign every client a seat in the class of its largest share, by free seats for equal ones: (K, n)."""
    seats, left = np.zeros(expected.shape, np.int64), room.copy()
    for c in range(expected.shape[1]):
        best = np.lexsort((-left, -expected[:, c], left == 0))[0]
        seats[best, c] = 1
        left[best] -= 1
    return seats


def _require_room(dataset: Dataset, group: _Group, settings: PartitionSettings, n_groups: int) -> Ints:
    """Return the seats of each class (K,); raise an error if a group has fewer seats than clients."""
    n = group.n
    n_train, n_test = _to_divide(dataset, group, settings)
    seats = np.minimum(n_train // settings.min_size, n_test)
    room = int(seats.sum())
    if room >= n:
        return seats
    if room:
        problem, works = f"has enough images for {room} clients, not {n}", f"n_clients <= {n_groups * room}"
    elif settings.min_size > 1:
        problem, works = "has no class that is large enough", "a smaller min_size"
    else:
        problem, works = "cannot be tested", "data with test images of the trained classes"
    raise FedotpError(
        f"{settings.scheme}: {group.title} {problem}; "
        f"each client needs {settings.min_size} training and 1 test images of one class; use {works}"
    )


def _require_shots(dataset: Dataset, settings: PartitionSettings) -> None:
    """Require that every class of the data set, or of each of its domains, has `shots` training images."""
    if settings.shots is None:
        return
    by_domain = settings.scheme in BY_DOMAIN
    domains = dataset.train.domains if by_domain else np.zeros(len(dataset.train), np.int64)
    cells, counts = np.unique(np.stack([domains, dataset.train.labels]), axis=1, return_counts=True)
    scarcest = int(counts.argmin())
    if counts[scarcest] < settings.shots:
        domain, label = cells[:, scarcest]
        where = f" in domain {dataset.domains[domain]}" if by_domain else ""
        raise FedotpError(
            f"{settings.scheme}: {settings.shots} shots, but the class {dataset.classes[label]!r} has only "
            f"{counts[scarcest]} training images{where}; use shots <= {counts[scarcest]}"
        )
