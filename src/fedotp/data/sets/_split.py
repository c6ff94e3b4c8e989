"""Train/test splits for data that come without one. The seed is fixed: a split belongs to the data set."""

from collections.abc import Sequence

import numpy as np

from fedotp.data._random import apportion, generator, shuffled
from fedotp.data._types import Ints
from fedotp.data.sets._image_files import Item

_SPLIT_SEED = 0

BY_DOMAIN = "drawn once, 80 % of every domain for training"  # what `split_by_domain` does, to people
BY_CLASS = "drawn once, 50 % train and 30 % test of every class (CoOp's sizes, not its members)"


def split_by_domain(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Put 80 % (rounded down) of every domain into train, stratified over its classes, the rest into test.

    These are FedBN's sizes (Office-Caltech10: 2,025 / 508); the members differ from its pickles. Every class
    of a domain has at least one training image: one that nobody can train on is no use in the test split.
    """
    kinds, cell, sizes = np.unique(
        [(domain, label) for _, label, domain in items], axis=0, return_inverse=True, return_counts=True
    )
    wanted = np.ones(len(kinds), np.int64)
    for domain in np.unique(kinds[:, 0]):
        of_domain = kinds[:, 0] == domain
        n_train = max(4 * int(sizes[of_domain].sum()) // 5, int(of_domain.sum()))
        wanted[of_domain] = apportion(n_train, sizes[of_domain].astype(float), at_least=wanted[of_domain])
    return _draw(items, cell.reshape(-1), wanted, sizes - wanted)


def split_by_class(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Put half of every class into train and about 30 % into test; the rest would be validation images.

    These are CoOp's sizes (Caltech101: 4,128 / 2,465), with its rounding; the members differ from those of
    its `split_zhou_*.json`.
    """
    _, cell, sizes = np.unique([label for _, label, _ in items], return_inverse=True, return_counts=True)
    n_train = np.maximum(np.rint(0.5 * sizes), 1).astype(np.int64)
    n_test = np.maximum(sizes - n_train - np.rint(0.2 * sizes).astype(np.int64), 0)
    return _draw(items, cell, n_train, n_test)


def _draw(items: Sequence[Item], cell: Ints, n_train: Ints, n_test: Ints) -> tuple[list[Item], list[Item]]:
    """Draw `n_train[c]` and then `n_test[c]` items of every cell c; both results keep the items' order."""
    rng = generator(_SPLIT_SEED)
    train, test = [], []
    for c in range(len(n_train)):
        members = shuffled(rng, np.flatnonzero(cell == c))
        train.append(members[: n_train[c]])
        test.append(members[n_train[c] : n_train[c] + n_test[c]])
    train_rows, test_rows = np.sort(np.concatenate(train)), np.sort(np.concatenate(test))
    return [items[i] for i in train_rows], [items[i] for i in test_rows]
