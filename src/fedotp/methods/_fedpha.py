"""FedPHA: a local prompt that predicts, separated from the global one and projected away from its main directions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._values import MOST, require_choices, require_from
from fedotp.matching import pooled_score
from fedotp.methods._method import LearningRates
from fedotp.methods._parts import Batch, Kind, Parameters, Prompt
from fedotp.methods._promptfl import PromptFL
from fedotp.methods._task import Task


@dataclass(frozen=True)
class FedPHA(PromptFL):
    """Fang et al., ICML 2025: a global prompt P_g of s vectors and a local one P_l, which alone predicts.

    With z_k(P) the class features of length 1 and P~ the local prompt projected away from the global one,

        loss = CE(P_l) + CE(P_g) + mse(z(P_l), z(P~)) + mean_k max(0, alpha - ||z_k(P_l) - z_k(P_g)||).

    Let V_c (d, c) be the c = int(s (1 - rho)) first right singular vectors of P_g, V_r (d, s - c) the other ones. The
    `subspace` "null" is orthogonal to the first, P~ = P_l - P_l V_c V_c', as in the paper; "row" is spanned by the
    others, P~ = P_l V_r V_r', as in the authors' code. The singular vectors are those of the received P_g, constant
    during the round.

    Attributes:
        rho: share of P_g's singular vectors that the projection of P_l does not remove.
        alpha: minimum distance of the two prompts' class features, below which they are penalised.
        subspace: subspace onto which P_l is projected: "null" as in the paper, "row" as in the authors' code.
        n_ctx_private: number of vectors of P_l, the same for all clients; 0 for that of P_g.
    """

    rho: float = 0.8
    alpha: float = 1.0
    subspace: Literal["null", "row"] = "null"
    n_ctx_private: int = 0

    name: ClassVar[str] = "fedpha"
    title: ClassVar[str] = "FedPHA"
    reference: ClassVar[str] = "Fang et al., ICML 2025"
    learning_rates: ClassVar[LearningRates] = LearningRates(mini=0.01)

    def __post_init__(self) -> None:
        require_from(0, 1, "method.rho", self.rho, " (the authors use 0.8)")
        require_from(0, MOST, "method.alpha", self.alpha, " (the authors use 1)")
        require_choices(self, "method.")
        require_from(0, MOST, "method.n_ctx_private", self.n_ctx_private, " (0: as many as the global prompt)")

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return P_g (1, s, d)."""
        return {"prompt": task.contexts(2)[:1]}

    def private(self, task: Task) -> Parameters:
        """Return P_l (1, s_l, d)."""
        return {"local": task.contexts(2, self.n_ctx_private or None)[1:]}

    def deployed(self, received: Parameters, private: Parameters) -> Parameters:
        """Predict with the local prompt alone."""
        return private

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the client's own prompt."""
        return (Prompt(Kind.LOCAL, params["local"]),)

    def derived(self, task: Task, params: Parameters, own_classes: Tensor | None) -> Parameters:
        """Return the singular vectors of P_g to remove, (C, 1, d, c), or to project onto, (C, 1, d, s - c)."""
        if "prompt" not in params:
            return {}
        prompt = params["prompt"]
        rows = torch.linalg.svd(prompt.double(), full_matrices=False).Vh.to(prompt.dtype)
        n_first = int(prompt.shape[-2] * (1 - self.rho))
        return {"basis": (rows[..., :n_first, :] if self.subspace == "null" else rows[..., n_first:, :]).mT}

    def training_prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return P_l, P~ (computed from P_l) and P_g."""
        local = params["local"]
        within = local @ params["basis"] @ params["basis"].mT
        projected = local - within if self.subspace == "null" else within
        contexts = {Kind.LOCAL: local, Kind.OTHERS: projected, Kind.GLOBAL: params["prompt"]}
        return tuple(Prompt(kind, context) for kind, context in contexts.items())

    def terms(
        self, task: Task, params: Parameters, received: Parameters, batch: Batch, classes: Tensor
    ) -> Sequence[Tensor]:
        """Return the four terms, the first two as one."""
        local, projected, common = F.normalize(classes, dim=-1).unbind(1)
        first, second = (pooled_score(batch.image.pooled, features.unsqueeze(1)) for features in (local, common))
        fits = self._fit(task, batch, first) + self._fit(task, batch, second)
        kept = (local - projected).square().mean((1, 2))
        apart = (self.alpha - torch.linalg.vector_norm(local - common, dim=-1)).clamp_min(0).mean(1)
        return [fits, kept, apart]
