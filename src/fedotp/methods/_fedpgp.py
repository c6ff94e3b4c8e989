"""FedPGP: a shared prompt with a private low-rank change."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from fedotp._values import MOST, require_choices, require_from
from fedotp.methods._method import LearningRates
from fedotp.methods._parts import Batch, Kind, Parameters, Prompt
from fedotp.methods._promptfl import PromptFL
from fedotp.methods._task import Task, normal
from fedotp.prompts import STD

_MOST_RANK = 256  # the paper uses 8; a rank above the number of vectors has no effect
_LEAST_TAU = 1e-6


@dataclass(frozen=True)
class FedPGP(PromptFL):
    """Cui et al., ICML 2024: the prompt of a client is P = sigma + U V, with sigma shared and U, V private.

    Its loss is the cross-entropy of P plus mu L, which pulls sigma toward zero-shot CLIP and away from P:

        L = mean_k -log(exp(a_k / tau) / (exp(a_k / tau) + exp(b_k / tau))),
        a_k = cos(z_k(sigma), z_k(anchor)),   b_k = cos(z_k(sigma), z_k(P)).

    Attributes:
        rank: rank of U V, a client's change to the shared prompt.
        mu: weight of L in the loss.
        tau: temperature of the cosines in L.
        anchor: caption of zero-shot CLIP in L: the data set's "template" as in the paper, or "x": one letter X for each
            context vector before the name, as in the authors' code.
    """

    rank: int = 8
    mu: float = 0.5
    tau: float = 0.5
    anchor: Literal["template", "x"] = "template"

    name: ClassVar[str] = "fedpgp"
    title: ClassVar[str] = "FedPGP"
    reference: ClassVar[str] = "Cui et al., ICML 2024"
    learning_rates: ClassVar[LearningRates] = LearningRates(mini=0.03)

    def __post_init__(self) -> None:
        require_from(1, _MOST_RANK, "method.rank", self.rank, " (the paper uses 8)")
        require_from(0, MOST, "method.mu", self.mu, " (the paper uses 0.5)")
        require_from(_LEAST_TAU, MOST, "method.tau", self.tau, " (the paper uses 0.5)")
        require_choices(self, "method.")

    def private(self, task: Task) -> Parameters:
        """Return U (1, s, r) and V (1, r, d); (1, K, ...) with vectors per class."""
        *several, n_ctx, width = task.contexts(1).shape
        return {
            "u": normal(task, "fedpgp u", *several, n_ctx, self.rank, std=STD),
            "v": normal(task, "fedpgp v", *several, self.rank, width, std=STD),
        }

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return P."""
        return (Prompt(Kind.BOTH, params["prompt"] + params["u"] @ params["v"]),)

    def training_prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return P, which predicts, and sigma."""
        return *self.prompts(task, params), Prompt(Kind.GLOBAL, params["prompt"])

    def terms(
        self, task: Task, params: Parameters, received: Parameters, batch: Batch, classes: Tensor
    ) -> Sequence[Tensor]:
        """Return the cross-entropy of P, and mu L."""
        fit = self._fit(task, batch, self.score(task, params, batch, classes[:, :1]))
        own, sigma = F.normalize(classes, dim=-1).unbind(1)  # (C, K, e)
        x = " ".join(["X"] * task.encoder.n_ctx + ["{}."])
        anchor = task.caption_features(task.template if self.anchor == "template" else x)[0, 0]
        known = F.normalize(anchor, dim=-1)
        a, b = (sigma * known).sum(-1), (sigma * own).sum(-1)  # (C, K)
        apart = -F.logsigmoid((a - b) / self.tau).mean(-1)
        return [fit, self.mu * apart]
