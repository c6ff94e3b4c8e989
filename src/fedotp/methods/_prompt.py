"""What a method learns, by name, the prompts it makes of it, and what these must not forget (KgCoOp)."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp.methods._task import Task

Parameters = dict[str, Tensor]


class Kind(StrEnum):
    """What a prompt is to its client."""

    GLOBAL = "global"  # the same for everyone
    LOCAL = "local"  # the client's own
    BOTH = "global and local"  # made of both
    OTHERS = "another client's"  # received, and held fixed
    CAPTION = "caption"  # written by hand, nobody learns it


class Prompt(NamedTuple):
    """Prompts of one kind and length.

    `context` is (C, n, s, d), n prompts of s vectors, or (C, n, K, s, d) with vectors of their own for every class;
    None stands for the task's caption.
    """

    kind: Kind
    context: Tensor | None

    @property
    def n_prompts(self) -> int:
        """How many they are, n."""
        return 1 if self.context is None else self.context.shape[1]


_LEARNED = frozenset({Kind.GLOBAL, Kind.LOCAL, Kind.BOTH})


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
