"""KgCoOp: what prompts learn must not make them forget what hand-written captions say."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp.methods._prompt import Kind
from fedotp.methods._task import Task

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
