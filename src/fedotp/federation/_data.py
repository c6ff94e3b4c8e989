"""Encoded images of a federation: features, labels, and the rows of each client."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.data.partition import Client
from fedotp.data.store import EncodedDataset, EncodedSplit
from fedotp.federation._sampling import Ints, draws, order
from fedotp.methods import Batch, Memory, Need, Task

OnImages = Callable[[int], object]
"""Called with a number of images after they have been trained on or predicted."""

_NONE = np.empty(0, np.int64)
_CHUNK = 512  # images read at once for a memory


@dataclass(frozen=True, eq=False)
class HeldFeatures:
    """Features in memory, on any device: pooled (k, n, e) and tokens (k, n, V, e) of n images in k crops.

    For data created by a program, and to keep a small data set on the GPU.
    """

    pooled: Tensor
    tokens: Tensor

    @property
    def n_crops(self) -> int:
        """Number of crops of every image."""
        return len(self.pooled)

    def read(
        self,
        indices: ArrayLike | Tensor,
        crop: ArrayLike | Tensor = 0,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        tokens: bool = True,
    ) -> ImageFeatures:
        """Return pooled (..., e) and token (..., V, e) features; without `tokens` V is 0."""
        index = torch.as_tensor(np.asarray(indices), device=self.pooled.device)
        crops = torch.as_tensor(np.asarray(crop), device=self.pooled.device).expand_as(index)
        seen = self.tokens if tokens else self.tokens[:, :, :0]
        return ImageFeatures(
            pooled=self.pooled[crops, index].to(device, dtype), tokens=seen[crops, index].to(device, dtype)
        )


Features = EncodedSplit | HeldFeatures
"""Encoded images: in a token store or in memory."""


@dataclass(frozen=True, eq=False)
class Images:
    """Encoded images with their labels (n,), and the rows of each client, `clients[i]` (m_i,).

    `groups` (n,) are the numbers of the patients or parts in the images, if known.
    """

    features: Features
    labels: Ints
    clients: tuple[Ints, ...]
    groups: Ints | None = None

    def sizes(self, clients: Ints) -> Ints:
        """Return the number of images of each of `clients` (C,): (C,)."""
        return np.array([len(self.clients[i]) for i in clients], np.int64)

    def rows(self, clients: Ints, places: Ints) -> Ints:
        """Return the rows (C, B) of the images at positions `places` (C, B) in the clients' lists; -1 stays -1."""
        rows = [
            self.clients[i][place] if len(self.clients[i]) else place for i, place in zip(clients, places, strict=True)
        ]
        return np.where(places < 0, -1, np.stack(rows))

    def read(
        self,
        rows: Ints,
        crop: Ints | int,
        device: torch.device,
        dtype: torch.dtype,
        needs: frozenset[Need] = frozenset(Need),
    ) -> tuple[ImageFeatures, Tensor]:
        """Read features and labels of `rows` (C, B); a row of -1 has the label -1 and arbitrary features.

        `needs` are the features that a method uses; tokens, by far the largest, are read only if needed.
        """
        tokens = Need.TOKENS in needs
        image = self.features.read(np.maximum(rows, 0), crop, device=device, dtype=dtype, tokens=tokens)
        labels = np.where(rows < 0, -1, self.labels[np.maximum(rows, 0)])
        return image, torch.from_numpy(labels).to(device)


@dataclass(frozen=True, eq=False)
class FederatedData:
    """The images of the local clients, in rows, and the clients' names and domains (None if mixed).

    `numbers` are the clients' numbers in the federation, on which draws depend; by default their row numbers. `seeds`
    are the clients' own if they belong to several federations. `n_skipped` images could not be decoded. `withheld` are
    test images not used because their clients are excluded.
    """

    names: tuple[str, ...]
    domains: tuple[str | None, ...]
    train: Images
    test: Images
    numbers: tuple[int, ...] | None = None
    seeds: tuple[int, ...] | None = None
    n_skipped: int = 0
    withheld: Ints = field(default_factory=lambda: _NONE)
    _spatial: dict[tuple[torch.device, torch.dtype], Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, encoded: EncodedDataset, clients: Sequence[Client]) -> "FederatedData":
        """Return the images of `clients`, whose rows are positions in `encoded`."""
        several = len(encoded.dataset.domains) > 1  # a single domain is not recorded
        return cls(
            names=tuple(client.name for client in clients),
            domains=tuple(client.domain if several else None for client in clients),
            train=Images(
                encoded.train,
                encoded.dataset.train.labels,
                tuple(client.train for client in clients),
                encoded.dataset.train.groups,
            ),
            test=Images(encoded.test, encoded.dataset.test.labels, tuple(client.test for client in clients)),
            n_skipped=len(encoded.dataset.skipped),
        )

    @classmethod
    def side_by_side(cls, several: Sequence["FederatedData"], seeds: Sequence[int]) -> "FederatedData":
        """Combine the clients of several federations over the same images; each draws from its own seed."""
        first = several[0]
        return replace(
            first,
            names=tuple(name for data in several for name in data.names),
            domains=tuple(domain for data in several for domain in data.domains),
            train=replace(first.train, clients=tuple(rows for data in several for rows in data.train.clients)),
            test=replace(first.test, clients=tuple(rows for data in several for rows in data.test.clients)),
            numbers=tuple(number for data in several for number in data.numbers or range(len(data))),
            seeds=tuple(seed for data, seed in zip(several, seeds, strict=True) for _ in data.names),
        )

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self.names)

    def without(self, clients: Ints) -> "FederatedData":
        """Return a copy without the images of `clients` (C,); test images that only they had are not used."""
        away, rows = set(clients.tolist()), self.test.clients
        theirs = np.concatenate([self.withheld, *(rows[i] for i in away)])
        others = np.concatenate([_NONE, *(rows[i] for i in range(len(self)) if i not in away)])
        train, test = (
            replace(images, clients=tuple(_NONE if i in away else own for i, own in enumerate(images.clients)))
            for images in (self.train, self.test)
        )
        return replace(self, train=train, test=test, withheld=np.setdiff1d(theirs, others))

    def has_the_images_of(self, other: "FederatedData") -> bool:
        """True if both have the same features and labels, row by row."""
        pairs = ((self.train, other.train), (self.test, other.test))
        return all(one.features is two.features and one.labels is two.labels for one, two in pairs)

    def draws(self, seed: int, purpose: str, round_: int, clients: Ints) -> list[np.random.Generator]:
        """Return the random streams of `clients` (C,) for one purpose in one round; `seed` if they have no own."""
        numbers = clients if self.numbers is None else np.array(self.numbers)[clients]
        seeds = [seed] * len(clients) if self.seeds is None else [self.seeds[client] for client in clients]
        return [draws(own, purpose, round_, int(number)) for own, number in zip(seeds, numbers, strict=True)]

    def class_counts(self, clients: Ints, n_classes: int) -> Ints:
        """Return the numbers of training images of each class of `clients` (C,): (C, K)."""
        own = (self.train.labels[self.train.clients[i]] for i in clients)
        return np.stack([np.bincount(labels, minlength=n_classes) for labels in own])

    def class_prior(self, clients: Ints, n_classes: int, strength: float, smoothing: float) -> Tensor | None:
        """Return `strength` times the logarithms of the class frequencies of `clients` (C,): (C, K); None for 0."""
        if not strength:
            return None
        return strength * log_frequencies(self.class_counts(clients, n_classes), smoothing)

    def own_classes(self, clients: Ints, n_classes: int, device: torch.device) -> Tensor:
        """Return (C, K), true for classes among the training images of `clients`; all true for one without images."""
        own = self.class_counts(clients, n_classes) > 0
        own[~own.any(1)] = True
        return torch.from_numpy(own).to(device)

    def with_shuffled_labels(self, seed: int) -> "FederatedData":
        """Return a copy in which the labels of every client's training images are shuffled."""
        labels = self.train.labels.copy()
        streams = self.draws(seed, "labels", 0, np.arange(len(self)))
        for rows, stream in zip(self.train.clients, streams, strict=True):
            labels[rows] = labels[rows][order(stream, len(rows))]
        return replace(self, train=replace(self.train, labels=labels))

    def memory(self, clients: Ints, device: torch.device, dtype: torch.dtype) -> Memory:
        """Return the training images of `clients`, in their first crop, for methods with `uses_memory`."""
        if (device, dtype) not in self._spatial:
            spatial = []  # mean normalised patch tokens
            for start in range(0, len(self.train.labels), _CHUNK):
                part = np.arange(start, min(start + _CHUNK, len(self.train.labels)))
                tokens = self.train.features.read(part, device=device, dtype=dtype).tokens
                spatial.append(F.normalize(tokens, dim=-1).mean(-2))
            self._spatial[device, dtype] = torch.cat(spatial)  # (n, e)
        most = max(1, int(self.train.sizes(clients).max()))
        places = np.arange(most)[None] * np.ones((len(clients), 1), np.int64)
        places = np.where(places < self.train.sizes(clients)[:, None], places, -1)
        rows = self.train.rows(clients, places)
        index = torch.from_numpy(np.maximum(rows, 0)).to(device)
        labels = np.where(rows < 0, -1, self.train.labels[np.maximum(rows, 0)])
        return Memory(self._spatial[device, dtype][index], torch.from_numpy(labels).to(device))


@dataclass(frozen=True, eq=False)
class Novel:
    """Test images of classes that no client trains on: class names, features and labels (n,), numbered from 0.

    `digest` is that of the data set of these classes.
    """

    classes: tuple[str, ...]
    features: Features
    labels: Ints
    digest: str = ""


@dataclass(frozen=True, eq=False)
class Backdoor:
    """Training images of attackers, and test images that measure their success.

    `train` and `labels` (2 n,) are the n original training images, then the images and labels of attackers. `test` are
    the test images with the attackers' patch; success is a prediction of the class `target` for `rows` of them.
    """

    train: Features
    labels: Ints
    test: Features
    target: Ints
    rows: Ints


# Images on the GPU, where training and evaluation replay CUDA graphs -----------------------------------------


class ResidentImages:
    """The training images of a federation on the training device."""

    def __init__(self, features: HeldFeatures, labels: Ints) -> None:
        """Copy `labels` (n,) to the device of the features."""
        self.features = features
        self.labels = torch.from_numpy(labels).to(features.pooled.device)

    @classmethod
    def of(cls, images: Images, device: torch.device) -> "ResidentImages | None":
        """Wrap images whose features are on the GPU `device`; return None for others."""
        features = images.features
        if device.type != "cuda" or not isinstance(features, HeldFeatures) or features.pooled.device != device:
            return None
        return cls(features, images.labels)

    def batch(self, rows: Tensor, crops: Tensor, task: Task, needs: frozenset[Need]) -> Batch:
        """Return the images `rows` (C, B), -1 for padding, in the clients' `crops` (C,); without tokens V is 0.

        For a tower in bfloat16, which is less precise, tokens remain in the precision in which they are stored.
        """
        at = rows.clamp_min(0)
        of = crops[:, None].expand_as(at)
        tokens = (self.features.tokens if Need.TOKENS in needs else self.features.tokens[:, :, :0])[of, at]
        tokens = tokens if task.clip.dtype == torch.bfloat16 else tokens.to(task.dtype)
        image = ImageFeatures(self.features.pooled[of, at].to(task.dtype), tokens)
        return Batch(image, torch.where(rows < 0, -1, self.labels[at]))


def at_least(n: int, most: int) -> int:
    """Return the smallest of most, most / 2, most / 4, ... (rounded up) that is at least n."""
    while -(-most // 2) >= n and most > 1:
        most = -(-most // 2)
    return most


def log_frequencies(counts: Ints | Tensor, smoothing: float) -> Tensor:
    """Return log((n_k + c) / sum_j (n_j + c)) in float64, for image counts n (..., K) and smoothing c."""
    smoothed = torch.as_tensor(counts, dtype=torch.float64) + smoothing
    return (smoothed / smoothed.sum(-1, keepdim=True)).log()
