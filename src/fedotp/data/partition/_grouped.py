"""Partition of whole groups: all images of a patient or part belong to one client."""

from collections.abc import Sequence

import numpy as np

from fedotp.data._dataset import Dataset
from fedotp.data._draws import shuffled
from fedotp.data._types import Floats, Ints
from fedotp.errors import FedotpError


def require_whole(dataset: Dataset, pools: Sequence[tuple[str, Ints, Ints]], scheme: str) -> None:
    """Require that no group has images in two of the pools (title, train, test), which have different clients."""
    owner: dict[int, str] = {}
    for title, train, test in pools:
        numbers = np.union1d(_groups(dataset.train.groups)[train], _groups(dataset.test.groups)[test])
        for number in numbers.tolist():
            if (other := owner.setdefault(number, title)) != title:
                raise FedotpError(
                    f"{scheme}: group {dataset.groups[number]!r} has images of {other} and of {title}, but must belong "
                    "to one client; use iid, dirichlet or quantity"
                )


def deal_whole(
    dataset: Dataset, train: Ints, test: Ints, shares: Floats, min_size: int, rng: np.random.Generator
) -> list[tuple[Ints, Ints]]:
    """Divide training and test images among n clients by `shares` (K, n) without splitting groups.

    Every client first gets the group that fits best. Then each remaining group, by decreasing size, goes to the client
    that lacks most of its images. Test images of classes that their client does not train on are unused.
    """
    n_classes, n = shares.shape
    labels, tested = dataset.train.labels, dataset.test.labels
    trained = _Deal(train, _groups(dataset.train.groups)[train], labels[train], n_classes, rng)
    counts = trained.deal(shares.T * trained.counts.sum(0), min_size)  # (n, K)
    final = _Deal(test, _groups(dataset.test.groups)[test], tested[test], n_classes, rng)
    wanted = counts / np.maximum(counts.sum(0), 1) * final.counts.sum(0)
    final.deal(wanted, 1)
    held = [(trained.rows(c), final.rows(c)) for c in range(n)]
    return [(rows, others[counts[c, tested[others]] > 0]) for c, (rows, others) in enumerate(held)]


class _Deal:
    """Assignment of images `rows` (m,) in G groups to clients."""

    def __init__(self, rows: Ints, groups: Ints, labels: Ints, n_classes: int, rng: np.random.Generator) -> None:
        names, self._group = np.unique(groups, return_inverse=True)
        self._all = rows
        self.counts = np.zeros((len(names), n_classes), np.int64)  # (G, K)
        np.add.at(self.counts, (self._group, labels), 1)
        order = shuffled(rng, np.arange(len(names)))
        self._order = order[np.argsort(-self.counts[order].sum(1), kind="stable")]
        self._owner = np.full(len(names), -1)

    def rows(self, client: int) -> Ints:
        """Return the images of a client."""
        return self._all[self._owner[self._group] == client]

    def deal(self, wanted: Floats, at_least: int) -> Ints:
        """Assign all groups so that counts approximate `wanted` (n, K); return the counts."""
        held = np.zeros(wanted.shape, np.int64)
        for c in np.argsort((wanted > 0).sum(1), kind="stable").tolist():  # clients with the fewest classes first
            while held[c].sum() < at_least:
                free = self._order[self._owner[self._order] < 0]
                fits = self.counts[free] @ wanted[c] / self.counts[free].sum(1) if len(free) else np.zeros(0)
                if not fits.max(initial=0) > 0:
                    raise FedotpError(
                        f"{len(self._order)} groups are too few to give each of {len(wanted)} clients {at_least} "
                        "training images and a test image of one class; use fewer clients"
                    )
                self._give(int(free[np.argmax(fits)]), c, held)
        for g in self._order[self._owner[self._order] < 0].tolist():
            lacking = (wanted - held) @ self.counts[g]  # (n,)
            self._give(g, int(np.lexsort((held.sum(1), -np.round(lacking, 6)))[0]), held)
        return held

    def _give(self, g: int, client: int, held: Ints) -> None:
        self._owner[g] = client
        held[client] += self.counts[g]


def _groups(numbers: Ints | None) -> Ints:
    assert numbers is not None  # the data set has groups
    return numbers
