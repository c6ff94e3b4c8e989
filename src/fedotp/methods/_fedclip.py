"""FedCLIP: an averaged adapter of the image feature, without learned prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._values import require_choices
from fedotp.matching import pooled_score
from fedotp.methods._method import LearningRates, OptimizerName, Rate
from fedotp.methods._parts import Batch, Parameters
from fedotp.methods._promptfl import ZeroShot
from fedotp.methods._task import Task

_NEVER = -1e4  # as a cosine: probability 0 with a finite gradient


@dataclass(frozen=True)
class FedCLIP(ZeroShot):
    """Lu et al., IEEE Data Engineering Bulletin 2023: attention over the components of the pooled feature f.

        A(f) = softmax(W_2 tanh(W_1 f + b_1) + b_2),   score_k = cos(A(f) * f, z_k), z_k of the hand-written caption.

    The average over clients is unweighted. With the `variant` "paper" f has length 1, and the loss is the cross-entropy
    over classes, as for all methods here. With "code", as in the authors' code, f is not normalised before the adapter,
    and the loss is CLIP's contrastive loss over the B images of a batch and the captions of their classes, although
    several images may have the same caption. The authors train with Adam, a learning rate of 5e-5, betas of 0.9 and
    0.98, an epsilon of 1e-6 and a weight decay of 0.2.

    Attributes:
        variant: loss and input of the adapter as in the "paper" or in the authors' "code".
    """

    variant: Literal["paper", "code"] = "paper"

    name: ClassVar[str] = "fedclip"
    title: ClassVar[str] = "FedCLIP"
    reference: ClassVar[str] = "Lu et al., IEEE Data Eng. Bull. 2023"
    optimizer: ClassVar[OptimizerName] = "adam"
    learning_rates: ClassVar[LearningRates] = LearningRates(paper=5e-5, mini=0.01)

    def __post_init__(self) -> None:
        require_choices(self, "method.")

    def own_lr(self, rate: Rate) -> float:
        """Return a smaller rate for the authors' loss on the bundled backbone."""
        return 0.001 if self.variant == "code" and rate != "paper" else super().own_lr(rate)

    @property
    def couples_images(self) -> bool:
        """True for the authors' loss, in which the images of a batch are negatives of each other."""
        return self.variant == "code"

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

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        """Compute the cosines of adapted images and captions, (C, B, K)."""
        image = batch.image.pooled if self.variant == "code" else F.normalize(batch.image.pooled, dim=-1)
        hidden = _linear(image, params, "first").tanh()
        return pooled_score(_linear(hidden, params, "second").softmax(-1) * image, classes)

    def terms(
        self, task: Task, params: Parameters, received: Parameters, batch: Batch, classes: Tensor
    ) -> Sequence[Tensor]:
        """Return the cross-entropy over classes, or over the pairs of the batch in both directions."""
        if self.variant == "paper":
            return super().terms(task, params, received, batch, classes)
        scores, counted = self.score(task, params, batch, classes), batch.labels >= 0
        at = batch.labels.clamp_min(0)[:, None].expand(-1, scores.shape[1], -1)
        pairs = scores.gather(2, at)  # (C, B, B): images by captions
        pairs = pairs.masked_fill(~(counted[:, :, None] & counted[:, None]), _NEVER)
        own = torch.where(counted, torch.arange(pairs.shape[1], device=pairs.device), -1)
        both = batch._replace(labels=own, prior=None)  # over pairs, not classes
        return [(self._fit(task, both, pairs) + self._fit(task, both, pairs.mT)) / 2]

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """Return the unweighted mean over clients."""
        return super().aggregate(server, clients, uploads, torch.ones_like(weights))


def _linear(x: Tensor, params: Parameters, layer: str) -> Tensor:
    """Apply each client's own layer, W x + b: (C, B, e)."""
    return x @ params[f"{layer}_weight"].mT + params[f"{layer}_bias"].unsqueeze(1)
