"""Partitions that Flower Datasets makes: any of its partitioners that divides images."""

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
    """The partition of `dataset` that a partitioner of `flwr_datasets` makes of its training images.

    The partitioner is given a table with the columns `label` (the class's number), `domain` (its name) and `row`. Test
    images of a class go to the clients in proportion to their training images of it. Save the partition, and run it
    with `fedotp run --partition FILE`.

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
    """The positions of each client's training images, sorted."""
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise FedotpError(
            "Flower Datasets needs datasets, which is not installed: pip install 'fedotp[hf]' flwr-datasets"
        ) from None
    split = dataset.train
    domains = [dataset.domains[d] for d in split.domains]
    name = type(partitioner).__name__
    table = {"row": list(range(len(split))), "label": split.labels.tolist(), "domain": domains}
    try:
        partitioner.dataset = datasets.Dataset.from_dict(table)
        parts = [partitioner.load_partition(n) for n in range(partitioner.num_partitions)]
        rows = [np.sort(np.array(part["row"], np.int64)) for part in parts]
    except Exception as error:  # whatever a partitioner makes of images it was not meant for
        raise FedotpError(
            f"{name} does not divide the {len(split):,} images of {dataset.name}: {one_line(error)}; "
            "the columns to divide by are label and domain"
        ) from error
    given, counts = np.unique(np.concatenate(rows), return_counts=True)
    if min(map(len, rows)) == 0:
        raise FedotpError(f"{name} leaves a client without images; give every client some")
    if (counts > 1).any():
        raise FedotpError(f"{name} gives image {given[counts > 1][0]} to several clients; every image has one client")
    return rows


def _alike(dataset: Dataset, train: list[Ints]) -> list[Ints]:
    """Test images of each client: those of a class in proportion to the training images of it, in order."""
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
    """The one domain all of them come from, if there are several."""
    found = np.unique(dataset.train.domains[rows])
    return dataset.domains[found[0]] if len(found) == 1 and len(dataset.domains) > 1 else None
