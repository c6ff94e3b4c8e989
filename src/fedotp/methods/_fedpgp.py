"""FedPGP: a shared prompt, and a private change to it of low rank."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._ranges import MOST, require_choices, require_from
from fedotp.methods._method import Method
from fedotp.methods._prompt import Kind, Parameters, Prompt
from fedotp.methods._promptfl import PromptFL
from fedotp.methods._task import Task
from fedotp.prompts import STD

_MOST_RANK = 256  # the paper has 8, and no change has a higher rank than a prompt has vectors
_LEAST_TAU = 1e-6


@dataclass(frozen=True)
class FedPGP(Method):
    """Cui et al., ICML 2024: the prompt of a client is P = sigma + U V, with sigma averaged and U, V kept.

    Its loss is the cross-entropy of P and mu L, which draws sigma to what CLIP knew and away from P:

        L = mean_k -log(exp(a_k / tau) / (exp(a_k / tau) + exp(b_k / tau))),
        a_k = cos(z_k(sigma), z_k(anchor)),   b_k = cos(z_k(sigma), z_k(P)).

    `rank` is that of U V. `anchor` is what stands for CLIP without training: the hand-written caption of the data set
    (the paper), or the letter X in place of each context vector (the authors' code).
    """

    rank: int = 8
    mu: float = 0.5
    tau: float = 0.5
    anchor: Literal["template", "x"] = "template"

    name: ClassVar[str] = "fedpgp"
    title: ClassVar[str] = "FedPGP"
    reference: ClassVar[str] = "Cui et al., ICML 2024"

    def __post_init__(self) -> None:
        require_from(1, _MOST_RANK, "method.rank", self.rank, " (the paper uses 8)")
        require_from(0, MOST, "method.mu", self.mu, " (the paper uses 0.5)")
        require_from(_LEAST_TAU, MOST, "method.tau", self.tau, " (the paper uses 0.5)")
        require_choices(self, "method.")

    @property
    def global_part(self) -> Method:
        """Sigma alone."""
        return PromptFL()

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Sigma (1, s, d), under the name that `global_part` gives its own."""
        return {"prompt": task.contexts(1)}

    def private(self, task: Task) -> Parameters:
        """U (1, s, r) and V (1, r, d); (1, K, ...) where every class has vectors of its own."""
        *several, n_ctx, width = task.contexts(1).shape
        return {
            "u": STD * task.draws("fedpgp u", *several, n_ctx, self.rank),
            "v": STD * task.draws("fedpgp v", *several, self.rank, width),
        }

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Sigma and P."""
        sigma = params["prompt"]
        return Prompt(Kind.GLOBAL, sigma), Prompt(Kind.BOTH, sigma + params["u"] @ params["v"])

    def weights(self, task: Task, params: Parameters) -> Tensor:
        """P alone predicts; sigma is there for the penalty."""
        return torch.arange(2, dtype=task.dtype, device=task.device)

    def penalty(self, task: Task, params: Parameters, received: Parameters, classes: Tensor) -> Tensor | None:
        """mu L, (C,)."""
        if not self.mu:
            return None
        sigma, own = F.normalize(classes, dim=-1).unbind(1)  # (C, K, e)
        known = F.normalize(self._anchored(task), dim=-1)
        a, b = (sigma * known).sum(-1), (sigma * own).sum(-1)  # (C, K)
        return -self.mu * F.logsigmoid((a - b) / self.tau).mean(-1)

    def _anchored(self, task: Task) -> Tensor:
        """Features (K, e) of what stands for CLIP without training."""
        if self.anchor == "template":
            return task.template_features()[0, 0]
        return task.caption_features(" ".join(["X"] * task.encoder.n_ctx + ["{}."]))[0, 0]
