"""Data sets without files, and what every partition of them must fulfil."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedotp.data import Dataset, Split
from fedotp.data._dataset import ImageFiles
from fedotp.data.partition import Partition
from fedotp.data.partition._settings import BY_DOMAIN


def _split(labels: np.ndarray, domains: np.ndarray, prefix: str) -> Split:
    names = tuple(f"{prefix}/{i}.png" for i in range(len(labels)))
    return Split(ImageFiles(Path("nowhere"), names), np.arange(len(labels)), labels, domains)


def make_dataset(train_counts: np.ndarray, test_counts: np.ndarray, *, coarse_of: tuple[int, ...] = ()) -> Dataset:
    """Make a data set without files from (domains, classes) tables of counts."""
    splits = []
    for prefix, counts in (("train", train_counts), ("test", test_counts)):
        cells = np.repeat(np.arange(counts.size), counts.ravel())
        splits.append(_split(cells % counts.shape[1], cells // counts.shape[1], prefix))
    n_domains, n_classes = train_counts.shape
    return Dataset(
        name="made",
        classes=tuple(f"class {k}" for k in range(n_classes)),
        domains=tuple(f"domain {d}" for d in range(n_domains)),
        train=splits[0],
        test=splits[1],
        split_note="made by a test",
        coarse_classes=tuple(f"coarse {c}" for c in range(max(coarse_of, default=-1) + 1)),
        coarse_of=coarse_of,
    )


def uniform_dataset(n_classes: int, n_train: int, n_test: int, n_domains: int = 1) -> Dataset:
    shape = (n_domains, n_classes)
    return make_dataset(np.full(shape, n_train), np.full(shape, n_test))


def assert_sound(partition: Partition, dataset: Dataset) -> None:
    """Check what every partition promises."""
    settings = partition.settings
    assert len(partition) == settings.n_clients
    names = [client.name for client in partition.clients]
    assert len(set(names)) == len(names)
    train = np.concatenate([client.train for client in partition.clients])
    test = np.concatenate([client.test for client in partition.clients])
    assert len(np.unique(train)) == len(train)
    assert len(np.unique(test)) == len(test)
    for client in partition.clients:
        assert len(client.train) >= settings.min_size
        assert len(client.test) >= 1
        domains = np.union1d(dataset.train.domains[client.train], dataset.test.domains[client.test])
        if client.domain is not None:
            assert [dataset.domains[d] for d in domains] == [client.domain]
        # no client is tested on a class it never saw
        assert np.isin(dataset.test.labels[client.test], dataset.train.labels[client.train]).all()
    if settings.shots is None:
        assert len(train) == len(dataset.train)
    else:
        by_domain = settings.scheme in BY_DOMAIN
        cells = zip(dataset.train.labels, dataset.train.domains * by_domain, strict=True)
        divided = Counter((dataset.train.labels[i], dataset.train.domains[i] * by_domain) for i in train)
        assert divided == dict.fromkeys(cells, settings.shots)
    trained = set(zip(dataset.train.labels.tolist(), dataset.train.domains.tolist(), strict=True))
    if settings.scheme in BY_DOMAIN:
        possible = sum(
            pair in trained for pair in zip(dataset.test.labels.tolist(), dataset.test.domains.tolist(), strict=True)
        )
        assert len(test) == possible
    else:
        assert len(test) == len(dataset.test)


def grouped(dataset: Dataset, train: np.ndarray, test: np.ndarray) -> Dataset:
    """With groups by number; those of test are others."""
    numbers = [np.asarray(train, np.int64), np.asarray(test, np.int64) + int(np.max(train)) + 1]
    names = tuple(f"p{i}" for i in range(int(numbers[1].max()) + 1))
    return replace(
        dataset,
        train=replace(dataset.train, groups=numbers[0]),
        test=replace(dataset.test, groups=numbers[1]),
        groups=names,
    )
