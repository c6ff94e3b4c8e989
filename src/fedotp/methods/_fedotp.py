"""FedOTP: global and local prompts, combined by optimal transport."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedotp import ot
from fedotp._values import require, require_choices
from fedotp.clip import ImageFeatures
from fedotp.errors import FedotpError, SettingError
from fedotp.matching import Matching
from fedotp.methods._method import Dial, LearningRates, Method
from fedotp.methods._parts import Kind, Parameters, Prompt
from fedotp.methods._task import Task

CONFIDENCE: Dial = "confidence"
_RIGHT_DIAL = "a number from 0 (global prompts only) to 1 (local ones only), or confidence"
_MOST_PROMPTS = 256  # the paper has two; each multiplies text encoding and transport


@dataclass(frozen=True)
class FedOTP(Method):
    """Li et al., CVPR 2024, Algorithm 2; with `rule` "classical" or "average" its ablations (Table 4).

    Attributes:
        n_shared: number N_g of global prompts (one in the paper).
        n_private: number N_l of local prompts (one in the paper).
        rule: matching of patches and prompts: "unbalanced" or "classical" transport, or the "average" similarity.
        reg: weight lambda of the entropy; larger values make the plan more uniform.
        mass: share gamma of the patches' mass that is transported, for "unbalanced".
        solver: solver of the transport problem; the result is the same.
        dial: share of the mass on the local prompts, from 0 (global prompts only) to 1 (local prompts only), our
            extension. None for the paper's N_l / N. "confidence" computes it for every image from the certainty of the
            local and of the global prompts (`by_confidence`).
    """

    n_shared: int = 1
    n_private: int = 1
    rule: ot.Rule = "unbalanced"
    reg: float = Matching.reg
    mass: float = Matching.mass
    solver: Literal["newton", "scaling", "log"] = "newton"  # not "batch": that is authors.batch_solver
    dial: Dial | None = None

    name: ClassVar[str] = "fedotp"
    title: ClassVar[str] = "FedOTP"
    reference: ClassVar[str] = "Li et al., CVPR 2024"
    learning_rates: ClassVar[LearningRates] = LearningRates(falling=0.5)

    def __post_init__(self) -> None:
        if min(self.n_shared, self.n_private) < 0 or not 1 <= self.n_shared + self.n_private <= _MOST_PROMPTS:
            raise FedotpError(
                f"method.n_shared = {self.n_shared} and method.n_private = {self.n_private}: "
                f"must not be negative, and their sum must be from 1 to {_MOST_PROMPTS}"
            )
        require_choices(self, "method.")  # excludes the `rule` "pooled"
        try:
            self.matching  # noqa: B018  (checks the other options)
        except SettingError as error:
            raise error.under("method") from None
        if self.dial is not None:
            right = self.dial == CONFIDENCE or (not isinstance(self.dial, str) and 0 <= self.dial <= 1)
            require(right, "method.dial", self.dial, _RIGHT_DIAL)
            both = min(self.n_shared, self.n_private) > 0
            require(both, "method.dial", self.dial, "none unless both method.n_shared and method.n_private are above 0")

    @property
    def matching(self) -> Matching:
        """Optimal transport of patches onto prompts: scores are 1 - d_{C,k} up to a constant (Eq. 6 to 10)."""
        return Matching(rule=self.rule, reg=self.reg, mass=self.mass, solver=self.solver)

    @property
    def adjustable(self) -> dict[str, tuple[str, object]]:
        """The options of transport and, with both kinds of prompts, the dial, whose default is N_l / N."""
        found: dict[str, tuple[str, object]] = {key: (key, getattr(self, key)) for key in ("rule", "reg", "mass")}
        if min(self.n_shared, self.n_private) > 0:
            equal = self.n_private / (self.n_shared + self.n_private)
            found["dial"] = ("dial", equal if self.dial is None else self.dial)
        return found

    @property
    def global_part(self) -> "FedOTP | None":
        """The method with global prompts alone."""
        return replace(self, n_private=0, dial=None) if self.n_shared else None

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return P_g (N_g, s, d)."""
        return {"shared": task.contexts(self.n_shared + self.n_private)[: self.n_shared]} if self.n_shared else {}

    def private(self, task: Task) -> Parameters:
        """Return P_l (N_l, s, d)."""
        return {"private": task.contexts(self.n_shared + self.n_private)[self.n_shared :]} if self.n_private else {}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return P_i = [P_g, P_{l,i}]."""
        kinds = {"shared": Kind.GLOBAL, "private": Kind.LOCAL}
        return tuple(Prompt(kind, params[name]) for name, kind in kinds.items() if name in params)

    def weights(self, task: Task, params: Parameters, image: ImageFeatures, classes: Tensor) -> Tensor | None:
        """Return the shares (N,) of the dial; with "confidence" (C, B, N), from the scores of each kind of prompts."""
        if self.dial is None:
            return None
        if not isinstance(self.dial, str):
            return fixed_shares(self.dial, self.n_shared, self.n_private, task.dtype, task.device)
        kinds = classes.split([self.n_shared, self.n_private], dim=1)
        with torch.no_grad():
            of_global, of_local = (task.rule(self.matching)(image, kind) for kind in kinds)
            dial = by_confidence(of_global, of_local, task.logit_scale)
        return shares(dial, self.n_shared, self.n_private)


# The dial: division of the mass between global and local prompts -------------------------------------------


def dial_of(text: str) -> Dial:
    """Parse a dial from text."""
    try:
        return "confidence" if text == CONFIDENCE else float(text)
    except ValueError:
        raise SettingError("dial", repr(text), _RIGHT_DIAL) from None


@lru_cache(maxsize=64)
def fixed_shares(dial: float, n_shared: int, n_private: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return `shares` of a number, cached to avoid a GPU synchronisation in every step."""
    return shares(torch.tensor(dial, dtype=torch.float64), n_shared, n_private).to(device, dtype)


def shares(dial: Tensor, n_shared: int, n_private: int) -> Tensor:
    """Return shares of the mass (..., N) for dials (...): 1 - dial for all global prompts, dial for all local ones."""
    each = ((1 - dial) / n_shared, dial / n_private)
    parts = (part[..., None].expand(*dial.shape, n) for part, n in zip(each, (n_shared, n_private), strict=True))
    return torch.cat(list(parts), dim=-1)


def by_confidence(global_scores: Tensor, local_scores: Tensor, logit_scale: Tensor) -> Tensor:
    """Return the dial (C, B) of every image from its scores (C, B, K) with global and with local prompts alone.

    It is the local share of certainty, 1 - H / log K with H the entropy of the probabilities; 0.5 if both are equal.
    """
    of_global, of_local = (_certainty(scores, logit_scale) for scores in (global_scores, local_scores))
    return of_local / (of_global + of_local)


def _certainty(scores: Tensor, logit_scale: Tensor) -> Tensor:
    """Return the certainty (C, B) of scores (C, B, K), from almost 0 (uniform) to 1 (one class)."""
    log_p = (scores * logit_scale.exp()).log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    return (1 - entropy / math.log(max(scores.shape[-1], 2))).clamp_min(1e-6)
