"""Parameters, prompts and batches of images, as methods use them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.methods._task import Task

Parameters = dict[str, Tensor]

IMAGES = "images"
"""Name of a shared scalar parameter: the number of examples in the server's last average."""


class Kind(StrEnum):
    """Kind of a prompt for its client."""

    GLOBAL = "global"  # shared by all clients
    LOCAL = "local"  # the client's own
    BOTH = "global and local"  # composed of both
    OTHERS = "another client's"  # received and constant
    CAPTION = "caption"  # written by hand, not learned


class Prompt(NamedTuple):
    """Prompts of one kind and length.

    `context` is (C, n, s, d), n prompts of s vectors, or (C, n, K, s, d) with vectors per class;
    None is the task's caption.
    """

    kind: Kind
    context: Tensor | None

    @property
    def n_prompts(self) -> int:
        """Number n of prompts."""
        return 1 if self.context is None else self.context.shape[1]


_LEARNED = frozenset({Kind.GLOBAL, Kind.LOCAL, Kind.BOTH})


def kinds_of(prompts: Sequence[Prompt]) -> tuple[Kind, ...]:
    """Return the kinds of the N prompts: (N,)."""
    return tuple(prompt.kind for prompt in prompts for _ in range(prompt.n_prompts))


def learned(kinds: Sequence[Kind]) -> list[int]:
    """Return the indices of learned prompts among prompts of these kinds."""
    return [n for n, kind in enumerate(kinds) if kind in _LEARNED]


def forgotten(task: Task, classes: Tensor, kinds: Sequence[Kind]) -> Tensor:
    """Compute KgCoOp's penalty (C,) (Yao et al., CVPR 2023) on class features (C, N, K, e) of prompts of these kinds.

    It is w (1 - mean_k cos(z_k(P), z_k of the template)), averaged over the learned prompts P; w is `prompt.kgcoop`.
    """
    near = F.cosine_similarity(classes, task.template_features(), dim=-1).mean(-1)  # (C, N)
    return task.prompt.kgcoop * (1 - torch.stack([near[:, n] for n in learned(kinds)]).mean(0))


class Need(StrEnum):
    """Features of an image that a method may need."""

    POOLED = "pooled"
    TOKENS = "tokens"


class Memory(NamedTuple):
    """The training images of C clients, padded to the longest, for non-parametric methods.

    Spatial features (C, M, e), the mean of normalised patch tokens; labels (C, M), -1 for padding.
    """

    spatial: Tensor
    labels: Tensor

    def rows(self, at: Tensor | slice) -> "Memory":
        """Return the rows of some clients, in the given order."""
        return Memory(self.spatial[at], self.labels[at])


class Batch(NamedTuple):
    """B images of each of C clients.

    Attributes:
        image:  pooled (C, B, e) and tokens (C, B, V, e).
        labels: (C, B), -1 for padding and for images to predict.
        places: (C, B), position of a training image in its client's memory; None for images to predict.
        memory: the clients' memories, for methods with `uses_memory`.
        padded: (C, B), true for padding; None if the labels show it or it is unknown.
        prior:  (C, K), added to the logits in the loss; None for nothing.
        apart:  return the loss of each image instead of their mean.
    """

    image: ImageFeatures
    labels: Tensor
    places: Tensor | None = None
    memory: Memory | None = None
    padded: Tensor | None = None
    prior: Tensor | None = None
    apart: bool = False

    @classmethod
    def of_no_images(cls, task: Task) -> "Batch":
        """Return an empty batch of one client, B = 0, to compute shapes."""
        grid, width = task.clip.config.vision.grid, task.clip.config.embed_dim
        pooled = torch.zeros(1, 0, width, device=task.device)
        tokens = torch.zeros(1, 0, grid * grid, width, device=task.device)
        return cls(ImageFeatures(pooled, tokens), torch.zeros(1, 0, dtype=torch.long, device=task.device))

    @property
    def counted(self) -> Tensor:
        """Mask (C, B) of the images that are not padding; all false if it is unknown."""
        return self.labels >= 0 if self.padded is None else ~self.padded
