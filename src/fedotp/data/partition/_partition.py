"""Partitions: the images of each client, saved as JSON with a digest."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedotp._files import json_digest, read_json, write_atomically
from fedotp._text import one_line
from fedotp.data._dataset import SPLITS, Dataset, SplitName
from fedotp.data._lists import MOST_BYTES
from fedotp.data._types import Ints
from fedotp.data.partition._settings import PartitionSettings
from fedotp.errors import FedotpError

_FORMAT = "fedotp-partition-1"


@dataclass(frozen=True, eq=False)
class Client:
    """One client's images: sorted positions in the data set's train (n,) and test (m,) splits.

    `domain` is the name of their domain, None if they have several.
    """

    name: str
    domain: str | None
    train: Ints
    test: Ints

    def __repr__(self) -> str:
        domain = f" ({self.domain})" if self.domain else ""
        return f"<Client {self.name}{domain}: {len(self.train):,} train and {len(self.test):,} test images>"

    def rows(self, split: SplitName) -> Ints:
        """Return the positions in the split called `split`."""
        return self.train if split == "train" else self.test


@dataclass(frozen=True, eq=False)
class Partition:
    """A data set divided among clients, with the settings to reproduce it."""

    dataset: str
    data_digest: str
    settings: PartitionSettings
    clients: tuple[Client, ...]

    def __repr__(self) -> str:
        return f"<Partition of {self.dataset} ({self.settings.scheme}): {len(self):,} clients>"

    def __len__(self) -> int:
        """Return the number of clients, C."""
        return len(self.clients)

    def counts(self, dataset: Dataset, split: SplitName = "train") -> Ints:
        """Count images by client and class: (C, K)."""
        labels = dataset.split(split).labels
        return np.stack([np.bincount(labels[c.rows(split)], minlength=len(dataset.classes)) for c in self.clients])

    def require(self, dataset: Dataset) -> None:
        """Require that `dataset` is the data set and version of this partition."""
        if self.data_digest != dataset.digest:
            raise FedotpError(
                f"the partition is of {self.dataset} {self.data_digest[:12]}, but the data set is "
                f"{dataset.name} {dataset.digest[:12]}; create the partition again"
            )
        for client in self.clients:
            for name in SPLITS:
                rows, n = client.rows(name), len(dataset.split(name))
                if len(rows) and not 0 <= rows.min() <= rows.max() < n:
                    raise FedotpError(
                        f"the partition gives {client.name} {name} images from {rows.min()} to {rows.max()} of {n}; "
                        "create the partition again"
                    )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the partition's JSON form."""
        return json_digest(self._as_dict())

    def _as_dict(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "dataset": self.dataset,
            "data_digest": self.data_digest,
            "settings": asdict(self.settings),
            "clients": [
                {"name": c.name, "domain": c.domain, "train": c.train.tolist(), "test": c.test.tolist()}
                for c in self.clients
            ],
        }

    def save(self, path: Path) -> None:
        """Write the partition to `path` atomically."""
        text = json.dumps({"digest": self.digest, **self._as_dict()}) + "\n"
        write_atomically(path, text)

    @classmethod
    def load(cls, path: Path) -> "Partition":
        """Read a partition and verify its format and digest."""
        content = read_json(path, MOST_BYTES)
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise FedotpError(f"{path} is not a partition: its format must be {_FORMAT!r}")
        try:
            partition = cls(
                dataset=_text(content["dataset"]),
                data_digest=_text(content["data_digest"]),
                settings=PartitionSettings(**content["settings"]),
                clients=tuple(_client(values) for values in content["clients"]),
            )
            stored = content["digest"]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FedotpError(f"{path} is not a complete partition: {type(error).__name__} {error}") from error
        if stored != partition.digest:
            raise FedotpError(f"{path} was modified after it was saved (wrong digest); create it again")
        return partition


def _rows(values: Sequence[int]) -> Ints:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise ValueError("images must be whole numbers")
    return np.array(values, dtype=np.int64)


def _client(values: dict[str, Any]) -> Client:
    domain = None if values["domain"] is None else _text(values["domain"])
    return Client(_text(values["name"]), domain, _rows(values["train"]), _rows(values["test"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]} must be text")
    return value


def require_sound_clients(dataset: Dataset, clients: Sequence[object], settings: PartitionSettings) -> None:
    """Check that `clients` are valid clients of `dataset` that share no image and no group."""
    names: set[str] = set()
    owner = {split: np.full(len(dataset.split(split)), -1) for split in SPLITS}
    try:
        if not clients or settings.n_clients not in (None, len(clients)):
            raise FedotpError(f"expected {settings.n_clients or 'at least 1'} clients, got {len(clients)}")
        for c, client in enumerate(clients):
            if not isinstance(client, Client) or not client.name or client.name in names:
                raise FedotpError(f"client {c} must be a Client with a unique name, got {one_line(repr(client), 80)}")
            names.add(client.name)
            for split in SPLITS:
                _give(client.rows(split), owner[split], c, f"{client.name}, {split}")
        for split in SPLITS:
            groups = dataset.split(split).groups
            if groups is not None:
                _require_whole(dataset, groups, owner[split], clients)
    except FedotpError as error:
        raise FedotpError(f"partition scheme {settings.scheme}: {error}") from error


def _give(rows: Ints, owner: Ints, client: int, whose: str) -> None:
    if not (isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype == np.int64 and len(rows)):
        raise FedotpError(f"{whose}: images must be a non-empty int64 array (n,) of positions in the split")
    if not 0 <= rows.min() <= rows.max() < len(owner) or (np.diff(rows) <= 0).any():
        raise FedotpError(f"{whose}: positions must be ascending, from 0 to {len(owner) - 1}")
    if (owner[rows] >= 0).any():
        raise FedotpError(f"{whose}: image {rows[owner[rows] >= 0][0]} already belongs to another client")
    owner[rows] = client


def _require_whole(dataset: Dataset, groups: Ints, owner: Ints, clients: Sequence[object]) -> None:
    pairs = np.unique(np.stack([groups, owner])[:, owner >= 0], axis=1)  # (2, pairs)
    twice = np.flatnonzero(np.diff(pairs[0]) == 0)
    if len(twice):
        group, first, second = pairs[0, twice[0]], pairs[1, twice[0]], pairs[1, twice[0] + 1]
        one, other = (getattr(clients[c], "name", "") for c in (first, second))
        raise FedotpError(f"group {dataset.groups[group]!r} must belong to one client, not to {one} and {other}")
