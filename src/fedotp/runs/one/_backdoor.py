"""What attackers of a simulated federation train on and are measured by, from the images of a run."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.data import Dataset, painted
from fedotp.federation import AttackSettings, Backdoor, Features, HeldFeatures

Encode = Callable[[Dataset], tuple[Features, Features]]
"""Features of the training and test images of a data set."""


def make_backdoor(
    attack: AttackSettings, dataset: Dataset, train: Features, test: Features, window: str, encode: Encode
) -> Backdoor:
    """The backdoor of an attack on data; `train` and `test` are the features of `dataset`, `window` is of its greys."""
    labels, target = dataset.train.labels, dataset.test.labels
    shown, _ = attack.labels(dataset.classes, labels)
    aim, rows = attack.labels(dataset.classes, target)
    other_train, other_test = train, test
    if attack.name == "backdoor":
        other_train, other_test = encode(painted(dataset, attack.patch, window))
    both = _beside(train, other_train, len(labels))
    return Backdoor(both, np.concatenate([labels, shown]), other_test, aim, rows)


def _beside(first: Features, second: Features, n: int) -> Features:
    """The features of both, n of each, one after the other."""
    if isinstance(first, HeldFeatures) and isinstance(second, HeldFeatures):
        return HeldFeatures(*(torch.cat([getattr(x, of) for x in (first, second)], 1) for of in ("pooled", "tokens")))
    return _Beside(first, second, n)


@dataclass(frozen=True, eq=False)
class _Beside:
    """The n images of `first`, then those of `second`, read from where they are."""

    first: Features
    second: Features
    n: int

    @property
    def n_crops(self) -> int:
        """Crops of every image."""
        return self.first.n_crops

    def read(
        self,
        indices: ArrayLike | Tensor,
        crop: ArrayLike | Tensor = 0,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        tokens: bool = True,
    ) -> ImageFeatures:
        """Pooled (..., e) and token (..., V, e) features; V is 0 without `tokens`."""
        rows = np.asarray(indices)
        shape, rows, crops = rows.shape, rows.ravel(), np.broadcast_to(np.asarray(crop), rows.shape).ravel()
        places, parts = [], []
        for features, at in ((self.first, rows < self.n), (self.second, rows >= self.n)):
            if at.any():
                places.append(np.flatnonzero(at))
                parts.append(features.read(rows[at] % self.n, crops[at], device=device, dtype=dtype, tokens=tokens))
        back = torch.from_numpy(np.argsort(np.concatenate(places))).to(device)
        return ImageFeatures(*(torch.cat(columns)[back].unflatten(0, shape) for columns in zip(*parts, strict=True)))
