"""What a partition scheme of somebody's own must return."""

from collections.abc import Sequence

import numpy as np

from fedotp._text import one_line
from fedotp.data._types import Ints
from fedotp.data.partition._partition import Client
from fedotp.data.partition._settings import PartitionSettings
from fedotp.data.sets import SPLITS, Dataset
from fedotp.errors import FedotpError


def require_sound_clients(dataset: Dataset, clients: Sequence[object], settings: PartitionSettings) -> None:
    """Refuse what are no clients of `dataset`, images that two of them have, and groups that are divided."""
    names: set[str] = set()
    owner = {split: np.full(len(dataset.split(split)), -1) for split in SPLITS}
    try:
        if not clients or settings.n_clients not in (None, len(clients)):
            raise FedotpError(f"it made {len(clients)} clients, {settings.n_clients or 'at least 1'} are asked for")
        for c, client in enumerate(clients):
            if not isinstance(client, Client) or not client.name or client.name in names:
                raise FedotpError(f"number {c} is no Client with a name of its own: {one_line(repr(client), 80)}")
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
        raise FedotpError(f"{whose}: images must be an array (n,) of int64 with at least one, positions in the split")
    if not 0 <= rows.min() <= rows.max() < len(owner) or (np.diff(rows) <= 0).any():
        raise FedotpError(f"{whose}: positions must rise, from 0 to {len(owner) - 1}")
    if (owner[rows] >= 0).any():
        raise FedotpError(f"{whose}: image {rows[owner[rows] >= 0][0]} is another client's already")
    owner[rows] = client


def _require_whole(dataset: Dataset, groups: Ints, owner: Ints, clients: Sequence[object]) -> None:
    pairs = np.unique(np.stack([groups, owner])[:, owner >= 0], axis=1)  # (2, pairs)
    twice = np.flatnonzero(np.diff(pairs[0]) == 0)
    if len(twice):
        group, first, second = pairs[0, twice[0]], pairs[1, twice[0]], pairs[1, twice[0] + 1]
        one, other = (getattr(clients[c], "name", "") for c in (first, second))
        raise FedotpError(f"group {dataset.groups[group]!r} is divided between {one} and {other}")
