"""pFedPrompt: a shared prompt with attention over the client's own images."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._values import MOST, require_from
from fedotp.matching import pooled_score
from fedotp.methods._method import LearningRates
from fedotp.methods._parts import Batch, Parameters
from fedotp.methods._promptfl import PromptFL
from fedotp.methods._task import Task


@dataclass(frozen=True)
class PFedPrompt(PromptFL):
    """Guo et al., WWW 2023. No code was published; this is our interpretation.

    The prompt is learned and averaged as in PromptFL. In the visual space each client adds parameter-free attention
    over its own training images: with f the image's pooled feature, G_j the *spatial* feature of training image j (the
    mean of its normalised patch tokens) and t_k the text feature of class k, all of length 1,

        w_j = softmax_j(beta f . G_j),   personal feature v = sum_j w_j G_j,   score_k = f . t_k + alpha v . t_k.

    Choices that the paper leaves open: one key per training image; alpha and beta as in Tip-Adapter (1 and 5.5); in
    training an image does not attend to itself. A client without images has no personal term.

    Attributes:
        alpha: weight of the personal term.
        beta: sharpness of the attention over the client's own images.
    """

    alpha: float = 1.0
    beta: float = 5.5

    name: ClassVar[str] = "pfedprompt"
    title: ClassVar[str] = "pFedPrompt"
    reference: ClassVar[str] = "Guo et al., WWW 2023"
    learning_rates: ClassVar[LearningRates] = LearningRates(mini=0.003)
    uses_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_from(0, MOST, "method.alpha", self.alpha)
        require_from(0, MOST, "method.beta", self.beta)

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        """Compute the global score plus alpha times the personal one, (C, B, K)."""
        score = pooled_score(batch.image.pooled, classes)
        if batch.memory is None:
            return score
        keys = F.normalize(batch.memory.spatial, dim=-1)  # (C, M, e)
        attention = self.beta * F.normalize(batch.image.pooled, dim=-1) @ keys.mT  # (C, B, M)
        hidden = (batch.memory.labels < 0).unsqueeze(1).expand_as(attention)
        if batch.places is not None:
            hidden = hidden | (batch.places.unsqueeze(-1) == torch.arange(keys.shape[1], device=keys.device))
        weights = attention.masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden, 0.0)
        return score + self.alpha * pooled_score(weights @ keys, classes)
