"""What clients make of the test images of all base classes, and of classes that nobody has seen."""

import numpy as np
import torch
from recipes.unseen.world import Floats, Ints
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.federation.testing import Predictor

_CHUNK = {"cpu": 100, "cuda": 500}  # images at a time


def scores(predictor: Predictor, image: ImageFeatures) -> Tensor:
    """Scores (C, n, K) of n images, the same for every client: pooled (n, e), tokens (n, V, e)."""
    parts = []
    size = _CHUNK[image.pooled.device.type]
    for start in range(0, len(image.pooled), size):
        part = (value[start : start + size] for value in image)
        parts.append(predictor.scores(ImageFeatures(*(x.expand(len(predictor), *x.shape) for x in part))))
    return torch.cat(parts, dim=1)


def by_class(right: Tensor, labels: Ints, n_classes: int) -> Floats:
    """Accuracies (C, K) by class, from which images (C, n) were recognised."""
    found = right.double().cpu().numpy()
    return np.stack([found[:, labels == k].mean(1) for k in range(n_classes)], axis=1)


def measure_base(found: Tensor, labels: Ints, shares: Floats) -> dict[str, float]:
    """Means over clients of what scores (C, n, K) of all base images say, for clients with `shares` (C, K).

    local:   on a client's own classes, as often as it has them, all base names in the softmax;
    base:    on all base classes;
    other:   on base classes that the client has no image of;
    masked:  the same with the names of its own classes left out;
    claimed: how many of these images it takes for one of its own classes.
    """
    n_classes = found.shape[-1]
    own = shares > 0
    truth = torch.from_numpy(labels).to(found.device)
    accuracy = by_class(found.argmax(-1) == truth, labels, n_classes)  # (C, K)
    result = {"local": (accuracy * shares).sum(1).mean(), "base": accuracy.mean()}
    if not own.all(1).any():
        mask = torch.from_numpy(own).to(found.device)  # (C, K)
        left = found.masked_fill(mask[:, None], -torch.inf).argmax(-1)
        masked = by_class(left == truth, labels, n_classes)
        claimed = by_class(mask.gather(1, found.argmax(-1)), labels, n_classes)
        for name, values in (("other", accuracy), ("masked", masked), ("claimed", claimed)):
            result[name] = np.mean([row[~has].mean() for row, has in zip(values, own, strict=True)])
    return {name: float(value) for name, value in result.items()}


def measure_novel(found: Tensor, labels: Ints) -> dict[str, float]:
    """Mean accuracy over clients on classes nobody has seen, from scores (C, n, K)."""
    truth = torch.from_numpy(labels).to(found.device)
    return {"novel": float(by_class(found.argmax(-1) == truth, labels, found.shape[-1]).mean())}
