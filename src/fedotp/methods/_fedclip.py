"""FedCLIP: an averaged adapter of the image feature, without learned prompts."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp.matching import pooled_score
from fedotp.methods._method import LearningRates, Method, OptimizerName
from fedotp.methods._parts import Batch, Kind, Parameters, Prompt
from fedotp.methods._task import Task


@dataclass(frozen=True)
class FedCLIP(Method):
    """Lu et al., IEEE Data Engineering Bulletin 2023: attention over the components of the pooled feature f.

        A(f) = softmax(W_2 tanh(W_1 f + b_1) + b_2),   score_k = cos(A(f) * f, z_k), z_k of the hand-written caption.

    with f of length 1. The average over clients is unweighted. The loss is the cross-entropy over classes, as for all
    methods here; in the authors' code it is CLIP's contrastive loss over a batch, although several images may have the
    same caption. The authors train with Adam, a learning rate of 5e-5, betas of 0.9 and 0.98, an epsilon of 1e-6 and a
    weight decay of 0.2.
    """

    name: ClassVar[str] = "fedclip"
    title: ClassVar[str] = "FedCLIP"
    reference: ClassVar[str] = "Lu et al., IEEE Data Eng. Bull. 2023"
    optimizer: ClassVar[OptimizerName] = "adam"
    learning_rates: ClassVar[LearningRates] = LearningRates(paper=5e-5, mini=0.01)

    @property
    def global_part(self) -> Method:
        """The method itself: clients keep nothing private."""
        return self

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return W_1, W_2 (e, e) and b_1, b_2 (e,), initialised like torch.nn.Linear."""
        width = task.clip.config.embed_dim
        generator = torch.Generator().manual_seed(task.seed)
        return {
            f"{layer}_{part}": torch.empty(shape)
            .uniform_(-(width**-0.5), width**-0.5, generator=generator)
            .to(task.device, task.dtype)
            for layer in ("first", "second")
            for part, shape in (("weight", (width, width)), ("bias", (width,)))
        }

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the captions."""
        return (Prompt(Kind.CAPTION, None),)

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        """Compute the cosines of adapted images and captions, (C, B, K)."""
        image = F.normalize(batch.image.pooled, dim=-1)
        hidden = _linear(image, params, "first").tanh()
        return pooled_score(_linear(hidden, params, "second").softmax(-1) * image, classes)

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """Return the unweighted mean over clients."""
        return super().aggregate(server, clients, uploads, torch.ones_like(weights))


def _linear(x: Tensor, params: Parameters, layer: str) -> Tensor:
    """Apply each client's own layer, W x + b: (C, B, e)."""
    return x @ params[f"{layer}_weight"].mT + params[f"{layer}_bias"].unsqueeze(1)
