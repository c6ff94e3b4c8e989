"""Half of the classes are dealt to clients, the other half is never seen: images, clients, and who has what."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from fedotp.clip import CLIP, ImageFeatures, load
from fedotp.data import load_dataset
from fedotp.data.store import EncodedSplit, encode
from fedotp.federation import FederatedData, HeldFeatures, Images

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Scheme = Literal["pairs", "dirichlet", "iid"]
_CHUNK = 256
_ALPHA = 0.3


@dataclass(frozen=True, eq=False)
class Material:
    """A data set of the package on the small backbone that comes with it, encoded, on one device."""

    name: str
    clip: CLIP
    classes: tuple[str, ...]
    train: HeldFeatures
    test: HeldFeatures
    train_labels: Ints
    test_labels: Ints

    @classmethod
    def of(cls, name: str, device: torch.device, n_test: int | None = None) -> "Material":
        """Encode it, or read its tokens back; of each class only the first `n_test` test images, if given."""
        clip = load("mini", device=device)
        encoded = encode(load_dataset(name), clip)
        splits = encoded.dataset.train, encoded.dataset.test
        held = (_held(split, device) for split in (encoded.train, encoded.test))
        whole = cls(name, clip, encoded.dataset.classes, *held, *(split.labels for split in splits))
        return whole if n_test is None else whole._tested_on(n_test)

    def _tested_on(self, n_test: int) -> "Material":
        """The same with the first `n_test` test images of each class."""
        labels = self.test_labels
        rows = np.concatenate([np.flatnonzero(labels == k)[:n_test] for k in range(len(self.classes))])
        test = HeldFeatures(self.test.pooled[:, rows], self.test.tokens[:, rows])
        return replace(self, test=test, test_labels=labels[rows])


def _held(split: EncodedSplit, device: torch.device) -> HeldFeatures:
    n = len(split)
    parts = [split.read(np.arange(i, min(i + _CHUNK, n)), device=device) for i in range(0, n, _CHUNK)]
    pooled, tokens = (torch.cat([getattr(part, name) for part in parts])[None] for name in ("pooled", "tokens"))
    return HeldFeatures(pooled, tokens)


@dataclass(frozen=True, eq=False)
class Division:
    """Which classes are base, by their places in the sorted list of all; the others are novel.

    The first division is the protocol's: the first half of the sorted names. The second is its other half; the rest
    are drawn, each followed by its other half.
    """

    material: Material
    number: int

    @cached_property
    def base(self) -> Ints:
        """Places of the base classes, in ascending order."""
        n = len(self.material.classes)
        order = np.arange(n)
        if self.number > 1:
            order = np.random.default_rng(self.number // 2).permutation(n)
        half = (n + 1) // 2
        return np.sort(order[half:] if self.number % 2 else order[:half])

    @cached_property
    def novel(self) -> Ints:
        """Places of the others."""
        return np.setdiff1d(np.arange(len(self.material.classes)), self.base)

    @cached_property
    def train_labels(self) -> Ints:
        """Labels (n,) among base classes; of novel images, which nobody has, some number."""
        return np.searchsorted(self.base, self.material.train_labels).clip(max=len(self.base) - 1)

    def names(self, places: Ints) -> tuple[str, ...]:
        """The names of the classes at `places`."""
        return tuple(self.material.classes[k] for k in places)

    def images(self, places: Ints) -> tuple[ImageFeatures, Ints]:
        """The test images (n, ...) of the classes at `places`, and their labels (n,) among these."""
        rows = np.flatnonzero(np.isin(self.material.test_labels, places))
        images = self.material.test.read(rows, device=self.material.clip.device)
        return images, np.searchsorted(places, self.material.test_labels[rows])


@dataclass(frozen=True, eq=False)
class Dealt:
    """The base classes' training images in the hands of clients.

    Attributes:
        shares: (C, K) what share of a client's images is of which base class.
    """

    data: FederatedData
    shares: Floats


def deal(division: Division, scheme: Scheme, n_clients: int, seed: int) -> Dealt:
    """Divide the base images among clients.

    "pairs": client i has two classes, every class has equally many clients; "dirichlet": each class is divided by a
    draw with alpha 0.3; "iid": evenly.
    """
    rng = np.random.default_rng([division.number, seed])
    n_classes = len(division.base)
    parts = np.full((n_classes, n_clients), 1 / n_clients)  # (K, C) of each class
    if scheme == "pairs":
        order = rng.permutation(n_classes)
        pairs = [(order[i % n_classes], order[(i + 1 + i // n_classes) % n_classes]) for i in range(n_clients)]
        has = np.array([[k in pair for pair in pairs] for k in range(n_classes)])
        parts = has / has.sum(1, keepdims=True)
    elif scheme == "dirichlet":
        parts = rng.dirichlet(np.full(n_clients, _ALPHA), n_classes)
    rows: list[list[Ints]] = [[] for _ in range(n_clients)]
    for k, place in enumerate(division.base):
        own = rng.permutation(np.flatnonzero(division.material.train_labels == place))
        ends = np.round(parts[k].cumsum() * len(own)).astype(int)
        for client, piece in enumerate(np.split(own, ends[:-1])):
            rows[client].append(piece)
    clients = tuple(np.sort(np.concatenate(pieces)) for pieces in rows)
    clients = tuple(each for each in clients if len(each))
    labels = division.train_labels
    counts = np.array([np.bincount(labels[each], minlength=n_classes) for each in clients])
    nothing = tuple(np.empty(0, np.int64) for _ in clients)
    material = division.material
    data = FederatedData(
        names=tuple(f"client-{i}" for i in range(len(clients))),
        domains=(None,) * len(clients),
        train=Images(material.train, labels, clients),
        test=Images(material.test, material.test_labels, nothing),
    )
    return Dealt(data, counts / counts.sum(1, keepdims=True))
