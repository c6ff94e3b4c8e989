"""Train/test splits for data without one, drawn with a fixed seed, so that they belong to the data set."""

from collections.abc import Sequence

import numpy as np

from fedotp._text import counted
from fedotp.data._dataset import DRAWN
from fedotp.data._draws import apportion, generator, shuffled
from fedotp.data._image_files import Item
from fedotp.data._types import Ints
from fedotp.errors import FedotpError

_SPLIT_SEED = 0

TRAIN, TEST, VALIDATION = ("train", "training"), ("test", "testing"), ("val", "valid", "validation")  # common names

BY_DOMAIN = f"{DRAWN}, 80 % of every domain for training"  # description of `split_by_domain`
_BY_GROUP = f"{DRAWN}, 80 % of every domain for training, no group in both splits"
BY_CLASS = f"{DRAWN}, 50 % train and 30 % test of every class (CoOp's sizes, not its members)"


def drawn_split(items: Sequence[Item], groups: Sequence[str] | None) -> tuple[list[Item], list[Item], str]:
    """Return train items, test items, and the note on the split, which divides no group."""
    if groups is None:
        return *split_by_domain(items), BY_DOMAIN
    return *_split_by_group(items, groups), _BY_GROUP


def split_by_domain(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Put 80 % (rounded down) of every domain into train, stratified over its classes, the rest into test.

    These are FedBN's sizes (Office-Caltech10: 2,025 / 508); the members differ from its pickles. Every class of a
    domain has at least one training image.
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
    """Put half of every class into train and about 30 % into test; the rest is unused.

    These are CoOp's sizes (Caltech101: 4,128 / 2,465) and rounding; the members differ from `split_zhou_*.json`.
    """
    _, cell, sizes = np.unique([label for _, label, _ in items], return_inverse=True, return_counts=True)
    n_train = np.maximum(np.rint(0.5 * sizes), 1).astype(np.int64)
    n_test = np.maximum(sizes - n_train - np.rint(0.2 * sizes).astype(np.int64), 0)
    return _draw(items, cell, n_train, n_test)


def _draw(items: Sequence[Item], cell: Ints, n_train: Ints, n_test: Ints) -> tuple[list[Item], list[Item]]:
    """Draw `n_train[c]` and then `n_test[c]` items of every cell c, in their original order."""
    rng = generator(_SPLIT_SEED)
    train, test = [], []
    for c in range(len(n_train)):
        members = shuffled(rng, np.flatnonzero(cell == c))
        train.append(members[: n_train[c]])
        test.append(members[n_train[c] : n_train[c] + n_test[c]])
    train_rows, test_rows = np.sort(np.concatenate(train)), np.sort(np.concatenate(test))
    return [items[i] for i in train_rows], [items[i] for i in test_rows]


def _split_by_group(items: Sequence[Item], groups: Sequence[str]) -> tuple[list[Item], list[Item]]:
    """Split whole groups, with shares as close as possible to those of `split_by_domain`.

    Groups are processed by decreasing size, in random order for equal ones. A group goes to the test split if that
    brings the shares of domains and classes closer to 20 %. Every class keeps training images, and a class without test
    images gets its smallest group, if it has another one.
    """
    _, cell = np.unique([(domain, label) for _, label, domain in items], axis=0, return_inverse=True)
    names, group = np.unique(groups, return_inverse=True)
    counts = _table(group, cell.reshape(-1))  # (groups, domains x classes)
    labels = _table(group, np.array([label for _, label, _ in items]))  # (groups, K)
    lacking, left = counts.sum(0) / 5, labels.sum(0)  # in test, in train
    in_test = np.zeros(len(names), bool)
    order = shuffled(generator(_SPLIT_SEED), np.arange(len(names)))
    order = order[np.argsort(-counts[order].sum(1), kind="stable")]

    def take(g: int) -> None:
        in_test[g] = True
        lacking[:] -= counts[g]
        left[:] -= labels[g]

    def can_go(g: int) -> bool:
        return not in_test[g] and bool((left[labels[g] > 0] > labels[g][labels[g] > 0]).all())

    for g in order.tolist():
        if can_go(g) and counts[g] @ (2 * lacking - counts[g]) > 0:
            take(g)
    for k in range(labels.shape[1]):
        candidates = [g for g in order[::-1].tolist() if labels[g, k] and can_go(g)]
        if not labels[in_test, k].sum() and candidates:
            take(candidates[0])
    if not in_test.any():
        raise FedotpError(f"cannot split {counted(len(names), 'group')}: at least one class must have two groups")
    rows = in_test[group].tolist()
    train = [item for item, tested in zip(items, rows, strict=True) if not tested]
    return train, [item for item, tested in zip(items, rows, strict=True) if tested]


def _table(rows: Ints, columns: Ints) -> Ints:
    """Count the occurrences of each pair: (rows, columns)."""
    counts = np.zeros((rows.max() + 1, columns.max() + 1), np.int64)
    np.add.at(counts, (rows, columns), 1)
    return counts
