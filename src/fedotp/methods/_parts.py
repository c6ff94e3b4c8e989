"""What methods are made of: parameters and the prompts made from them, and what is seen of images."""

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
"""A shared parameter of this name, without axes, is the number of examples that the server's last average is of."""


class Kind(StrEnum):
    """What a prompt is to its client."""

    GLOBAL = "global"  # the same for everyone
    LOCAL = "local"  # the client's own
    BOTH = "global and local"  # made of both
    OTHERS = "another client's"  # received, and held fixed
    CAPTION = "caption"  # written by hand, not learned


class Prompt(NamedTuple):
    """Prompts of one kind and length.

    `context` is (C, n, s, d), n prompts of s vectors, or (C, n, K, s, d) with vectors per class;
    None stands for the task's caption.
    """

    kind: Kind
    context: Tensor | None

    @property
    def n_prompts(self) -> int:
        """How many they are, n."""
        return 1 if self.context is None else self.context.shape[1]


_LEARNED = frozenset({Kind.GLOBAL, Kind.LOCAL, Kind.BOTH})


def kinds_of(prompts: Sequence[Prompt]) -> tuple[Kind, ...]:
    """What each of the N prompts is: (N,)."""
    return tuple(prompt.kind for prompt in prompts for _ in range(prompt.n_prompts))


def learned(kinds: Sequence[Kind]) -> list[int]:
    """Which of the prompts, of these kinds, their client learns."""
    return [n for n, kind in enumerate(kinds) if kind in _LEARNED]


def forgotten(task: Task, classes: Tensor, kinds: Sequence[Kind]) -> Tensor:
    """The penalty (C,) of Yao et al. (CVPR 2023) on class features (C, N, K, e) of prompts of these kinds.

    It is w (1 - mean_k cos(z_k(P), z_k of the template)), its mean over the prompts P that are learned; w is
    `prompt.kgcoop`. Who adds it to a loss asks first whether that is 0.
    """
    near = F.cosine_similarity(classes, task.template_features(), dim=-1).mean(-1)  # (C, N)
    return task.prompt.kgcoop * (1 - torch.stack([near[:, n] for n in learned(kinds)]).mean(0))


class Need(StrEnum):
    """Features of an image that a method may ask for; hidden states and pixels would be named here."""

    POOLED = "pooled"
    TOKENS = "tokens"


class Memory(NamedTuple):
    """The training images of C clients, padded to the longest: what a non-parametric method may look up.

    features: pooled (C, M, e) and spatial (C, M, e), the mean of the normalised patch tokens; labels (C, M), -1 where
    a client has fewer images.
    """

    pooled: Tensor
    spatial: Tensor
    labels: Tensor

    def rows(self, at: Tensor | slice) -> "Memory":
        """Of some of the clients, in the order given."""
        return Memory(self.pooled[at], self.spatial[at], self.labels[at])


class Batch(NamedTuple):
    """B images of each of C clients.

    Attributes:
        image:  pooled (C, B, e) and tokens (C, B, V, e).
        labels: (C, B), -1 for padding and for images to be predicted.
        places: (C, B) position of a training image in its client's memory; None for images to be predicted.
        memory: of the clients, for methods with `uses_memory`.
        padded: (C, B) true for padding; None where labels say it, or nothing is known.
        prior:  (C, K) is added to the logits in the loss; None for nothing.
        apart:  whether each image's own loss is asked for, instead of their mean.
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
        """Of one client, B = 0: for the shapes of what follows from images."""
        grid, width = task.clip.config.vision.grid, task.clip.config.embed_dim
        pooled = torch.zeros(1, 0, width, device=task.device)
        tokens = torch.zeros(1, 0, grid * grid, width, device=task.device)
        return cls(ImageFeatures(pooled, tokens), torch.zeros(1, 0, dtype=torch.long, device=task.device))

    @property
    def counted(self) -> Tensor:
        """Which images (C, B) are none of padding, as far as is known; none where nothing is."""
        return self.labels >= 0 if self.padded is None else ~self.padded
