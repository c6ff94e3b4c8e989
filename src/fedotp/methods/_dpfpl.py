"""DP-FPL: a private prompt trained through low-rank factors, which need less noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._values import require_choices, require_from
from fedotp.methods._method import LearningRates
from fedotp.methods._parts import Kind, Parameters, Prompt
from fedotp.methods._promptfl import PromptFL
from fedotp.methods._task import Task, normal
from fedotp.prompts import STD

_MOST_RANK = 256
_DIVISOR = 10  # of gradients, in the authors' code


@dataclass(frozen=True)
class DPFPL(PromptFL):
    """Tran et al., ICLR 2025: the prompt of a client is p_G + p_L, with p_G shared and p_L private.

    In every step one power iteration factorises p_L: u (s, k) has orthonormal columns, v (k, d) orthonormal rows that
    span those of u' p_L, and the residual r = p_L - u v is constant. With the gradients g_u and g_v of the loss of
    p_G + u v + r, the gradient of p_L is

        g_u v + u g_v - u u' g_u v,

    the full gradient without its part outside both spans. With the `variant` "code" the last term is added instead, and
    all gradients are divided by 10, as in the authors' code.

    Correction: the paper's epsilon assumes clipping of every image's gradient, but its code clips their mean, which
    guarantees nothing. Here privacy is that of any method: with `privacy.unit = "example"` and `privacy.private = true`
    the gradients of p_G, u and v of every image are clipped together, noise is added to their sums, and an accountant
    computes epsilon. With other settings the method has no privacy.

    Attributes:
        rank: rank k of the factors.
        variant: gradient of p_L as in the "paper" or in the authors' "code".
    """

    rank: int = 8
    variant: Literal["paper", "code"] = "paper"

    name: ClassVar[str] = "dp-fpl"
    title: ClassVar[str] = "DP-FPL"
    reference: ClassVar[str] = "Tran et al., ICLR 2025"
    learning_rates: ClassVar[LearningRates] = LearningRates()

    def __post_init__(self) -> None:
        require_from(1, _MOST_RANK, "method.rank", self.rank, " (the paper uses 8)")
        require_choices(self, "method.")

    def private(self, task: Task) -> Parameters:
        """Return p_L (1, s, d); (1, K, s, d) with vectors per class."""
        return {"local": normal(task, "dp-fpl local", *task.contexts(1).shape, std=STD)}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return p_G + p_L; in a training step as a function of the factors, with r constant."""
        prompt = params["prompt"] + params["local"]
        if "u" in params:
            product = params["u"] @ params["v"]
            prompt = prompt + (product - product.detach())
        return (Prompt(Kind.BOTH, prompt),)

    def leaves(self, params: Parameters, names: Sequence[str]) -> Parameters:
        """Return u (..., s, k) and v (..., k, d) in place of p_L (..., s, d)."""
        found = super().leaves(params, [name for name in names if name != "local"])
        if "local" not in names:
            return found
        local = params["local"]
        *_, n_ctx, width = local.shape
        u = _orthonormal(local @ _start(width, min(self.rank, n_ctx), local.dtype, local.device))  # one power iteration
        return found | {"u": u, "v": _orthonormal(local.mT @ u).mT}

    def gradients(self, leaves: Parameters, found: Parameters) -> Parameters:
        """Compute the gradient of p_L from those of u and v."""
        sign, divisor = (-1, 1) if self.variant == "paper" else (1, _DIVISOR)
        found = {name: value / divisor for name, value in found.items()}
        if "u" not in leaves:
            return found
        u, v, of_u, of_v = leaves["u"], leaves["v"], found.pop("u"), found.pop("v")
        return found | {"local": of_u @ v + u @ (of_v + sign * u.mT @ of_u @ v)}


def _orthonormal(columns: Tensor) -> Tensor:
    """Orthonormalise columns (..., s, k) by Gram-Schmidt, which a CUDA graph can capture."""
    found: list[Tensor] = []
    for column in columns.unbind(-1):
        for other in found:
            column = column - (other * column).sum(-1, keepdim=True) * other
        found.append(F.normalize(column, dim=-1))
    return torch.stack(found, dim=-1)


@lru_cache(maxsize=16)
def _start(width: int, rank: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the fixed random start (d, k) of power iterations."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(width, rank, dtype=torch.float64, generator=generator).to(device, dtype)
