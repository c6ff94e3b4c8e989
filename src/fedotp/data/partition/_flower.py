"""Partitions by the partitioners of Flower Datasets."""

from importlib import import_module
from typing import Any

import numpy as np

from fedotp._text import one_line
from fedotp.data._dataset import Dataset
from fedotp.data._types import Ints
from fedotp.data.partition._partition import Client, Partition
from fedotp.data.partition._settings import PartitionSettings
from fedotp.errors import FedotpError


def from_flower(dataset: Dataset, partitioner: Any) -> Partition:
    """Partition the training images of `dataset` by a partitioner of `flwr_datasets`.

    The partitioner gets a table with the columns `label` (class number), `domain` (name) and `row`. The test images of
    a class are divided in proportion to its training images. Save the partition and use it with
    `fedotp run --partition FILE`.

    Examples:
        >>> from flwr_datasets.partitioner import DirichletPartitioner          # doctest: +SKIP
        >>> data = load_dataset("cifar10-mini")                                 # doctest: +SKIP
        >>> divide = DirichletPartitioner(num_partitions=10, partition_by="label", alpha=0.5)   # doctest: +SKIP
        >>> from_flower(data, divide).save("ours.json")                         # doctest: +SKIP
    """
    train = _divided(dataset, partitioner)
    clients = [
        Client(f"client-{n}", _domain(dataset, rows), rows, tested)
        for n, (rows, tested) in enumerate(zip(train, _alike(dataset, train), strict=True), 1)
    ]
    settings = PartitionSettings("given", n_clients=len(clients))
    return Partition(dataset.name, dataset.digest, settings, tuple(clients))


def _divided(dataset: Dataset, partitioner: Any) -> list[Ints]:
    """Return the sorted positions of each client's training images."""
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise FedotpError("Flower Datasets needs datasets: pip install 'fedotp[hf]' flwr-datasets") from None
    split = dataset.train
    domains = [dataset.domains[d] for d in split.domains]
    name = type(partitioner).__name__
    table = {"row": list(range(len(split))), "label": split.labels.tolist(), "domain": domains}
    try:
        partitioner.dataset = datasets.Dataset.from_dict(table)
        parts = [partitioner.load_partition(n) for n in range(partitioner.num_partitions)]
        rows = [np.sort(np.array(part["row"], np.int64)) for part in parts]
    except Exception as error:  # partitioners raise any kind of error
        raise FedotpError(
            f"{name} cannot partition the {len(split):,} images of {dataset.name}: {one_line(error)}; "
            "use the columns label or domain"
        ) from error
    given, counts = np.unique(np.concatenate(rows), return_counts=True)
    if min(map(len, rows)) == 0:
        raise FedotpError(f"{name}: every client must have at least one image")
    if (counts > 1).any():
        raise FedotpError(f"{name}: image {given[counts > 1][0]} must belong to only one client")
    return rows


def _alike(dataset: Dataset, train: list[Ints]) -> list[Ints]:
    """Divide the test images of each class in proportion to the clients' training images of it, in order."""
    n_classes = len(dataset.classes)
    counts = np.stack([np.bincount(dataset.train.labels[rows], minlength=n_classes) for rows in train])  # (C, K)
    parts: list[list[Ints]] = [[] for _ in train]
    for k, own in enumerate(counts.T):
        rows = np.flatnonzero(dataset.test.labels == k)
        ends = np.rint(own.cumsum() / max(own.sum(), 1) * len(rows)).astype(np.int64)
        for part, piece in zip(parts, np.split(rows, ends[:-1]), strict=True):
            part.append(piece if own.sum() else rows[:0])
    return [np.sort(np.concatenate(part)) for part in parts]


def _domain(dataset: Dataset, rows: Ints) -> str | None:
    """Return the common domain of the images, None if they have several or the data set has one."""
    found = np.unique(dataset.train.domains[rows])
    return dataset.domains[found[0]] if len(found) == 1 and len(dataset.domains) > 1 else None
