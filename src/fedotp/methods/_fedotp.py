"""FedOTP: global and local prompts that cooperate through optimal transport."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from fedotp import ot
from fedotp._values import alternatives, require_one_of
from fedotp.clip import ImageFeatures
from fedotp.errors import FedotpError, SettingError
from fedotp.matching import Matching
from fedotp.methods._dial import CONFIDENCE, Dial, by_confidence, fixed_shares, require_dial, shares
from fedotp.methods._method import LearningRates, Method
from fedotp.methods._prompt import Kind, Parameters, Prompt
from fedotp.methods._task import Task

_MOST_PROMPTS = 256  # the paper has two; each multiplies text encoding and transport
_SHARES = "shares"  # among the parameters of clients that have their own


@dataclass(frozen=True)
class FedOTP(Method):
    """Li et al., CVPR 2024, Algorithm 2; with `rule` "classical" or "average" its ablations (Table 4).

    Attributes:
        n_shared: N_g, global prompts (the paper: one).
        n_private: N_l, local prompts (the paper: one).
        rule: how patches are matched with prompts: by unbalanced or classical transport, or all alike ("average").
        reg: lambda, weight of the entropy: the larger, the more even the plan.
        mass: gamma, the share of the patches' mass that is transported; "unbalanced" only.
        solver: how the transport problem is solved; the result is the same.
        dial: the share of the mass that the local prompts take together, from 0 (only the global ones count) to 1 (only
            the local ones). It is ours; None is the paper's, N_l / N. "confidence" finds it for every image: as certain
            as the local prompts alone are of it, compared with the global ones alone (`_dial.by_confidence`).
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
                f"neither may be negative, and together there must be from 1 to {_MOST_PROMPTS} prompts"
            )
        require_one_of(ot.Rule, "method.rule", self.rule)  # not "pooled", which needs no transport
        try:
            self.matching  # noqa: B018  (refuses what else is out of range)
        except SettingError as error:
            raise error.under("method") from None
        require_dial(self.dial, self.n_shared, self.n_private)

    @property
    def matching(self) -> Matching:
        """Optimal transport of patches onto prompts: scores are 1 - d_{C,k} up to a constant (Eq. 6 to 10)."""
        return Matching(rule=self.rule, reg=self.reg, mass=self.mass, solver=self.solver)

    def with_matching(self, matching: Matching) -> "FedOTP":
        """The same prompts, matched in another way."""
        if matching.rule == "pooled":
            raise FedotpError(f"FedOTP matches patches: its rule must be {alternatives(get_args(ot.Rule))}")
        return replace(self, rule=matching.rule, reg=matching.reg, mass=matching.mass)

    def with_dial(self, dial: Dial) -> "FedOTP":
        """The same prompts, the mass divided in another way."""
        return replace(self, dial=dial)

    @property
    def dial_position(self) -> Dial | None:
        """The dial; the paper's equal masses are a position, too."""
        if min(self.n_shared, self.n_private) == 0:
            return None
        return self.n_private / (self.n_shared + self.n_private) if self.dial is None else self.dial

    def side_by_side(self, others: Sequence[Method]) -> tuple[Method, list[Parameters]] | None:
        """Also where only the mass or the dial differs."""
        if together := super().side_by_side(others):
            return together
        methods = [method for method in (self, *others) if type(method) is FedOTP and method.dial != CONFIDENCE]
        alike = {method._alike for method in methods}
        if len(methods) <= len(others) or len(alike) > 1:
            return None
        options = {field.name: getattr(self._alike, field.name) for field in fields(self)}
        return _EachItsShares(**options), [{_SHARES: method._taken} for method in methods]

    @property
    def _alike(self) -> "FedOTP":
        """What does not lie in `_taken`."""
        return replace(self, mass=1.0 if self.matching.has_mass else self.mass, dial=None)

    @property
    def _taken(self) -> Tensor:
        """The mass (N,) that each prompt takes, in float64."""
        taken = self._fixed_shares(torch.float64, torch.device("cpu"))
        if taken is None:
            n_prompts = self.n_shared + self.n_private
            taken = torch.full((n_prompts,), 1 / n_prompts, dtype=torch.float64)
        return (self.mass if self.matching.has_mass else 1.0) * taken

    def _fixed_shares(self, dtype: torch.dtype, device: torch.device) -> Tensor | None:
        if self.dial is None or isinstance(self.dial, str):
            return None
        return fixed_shares(self.dial, self.n_shared, self.n_private, dtype, device)

    @property
    def global_part(self) -> "FedOTP | None":
        """The global prompts alone."""
        return replace(self, n_private=0, dial=None) if self.n_shared else None

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """P_g (N_g, s, d)."""
        return {"shared": task.contexts(self.n_shared + self.n_private)[: self.n_shared]} if self.n_shared else {}

    def private(self, task: Task) -> Parameters:
        """P_l (N_l, s, d)."""
        return {"private": task.contexts(self.n_shared + self.n_private)[self.n_shared :]} if self.n_private else {}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """P_i = [P_g, P_{l,i}]."""
        kinds = {"shared": Kind.GLOBAL, "private": Kind.LOCAL}
        return tuple(Prompt(kind, params[name]) for name, kind in kinds.items() if name in params)

    def weights(self, task: Task, params: Parameters) -> Tensor | None:
        """What the dial says; with "confidence" it is each image's own."""
        return self._fixed_shares(task.dtype, task.device)

    def weights_of(self, task: Task, params: Parameters, image: ImageFeatures, classes: Tensor) -> Tensor | None:
        """As `weights`; with "confidence" (C, B, N), after a look at the image with both kinds of prompts alone."""
        if self.dial != CONFIDENCE:
            return self.weights(task, params)
        kinds = classes.split([self.n_shared, self.n_private], dim=1)
        with torch.no_grad():
            of_global, of_local = (task.rule(self.matching)(image, kind) for kind in kinds)
            dial = by_confidence(of_global, of_local, task.logit_scale)
        return shares(dial, self.n_shared, self.n_private)


@dataclass(frozen=True)
class _EachItsShares(FedOTP):
    """FedOTP for clients with masses and dials of their own: what each prompt takes is among their parameters."""

    @property
    def fixed(self) -> frozenset[str]:
        """It is given."""
        return frozenset({_SHARES})

    def weights(self, task: Task, params: Parameters) -> Tensor:
        """The mass that each prompt takes, (C, N)."""
        return params[_SHARES].to(task.dtype)
