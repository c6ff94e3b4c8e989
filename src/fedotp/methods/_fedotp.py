"""FedOTP: global and local prompts that cooperate through optimal transport."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, get_args

import torch
from torch import Tensor

from fedotp import ot
from fedotp._ranges import alternatives, require_one_of
from fedotp.errors import FedotpError, SettingError
from fedotp.matching import Matching
from fedotp.methods._method import Method
from fedotp.methods._prompt import Kind, Parameters, Prompt
from fedotp.methods._task import Task

_MOST_PROMPTS = 256  # the paper has two; each multiplies text encoding and transport
_MASS = "mass"  # among the parameters of clients that have one each


@dataclass(frozen=True)
class FedOTP(Method):
    """Li et al., CVPR 2024, Algorithm 2; with `rule` "classical" or "average" its ablations (Table 4).

    `n_shared` global and `n_private` local prompts (the paper: one of each); `reg` is lambda, `mass` is gamma,
    `solver` how the transport problem is solved.
    """

    n_shared: int = 1
    n_private: int = 1
    rule: ot.Rule = "unbalanced"
    reg: float = Matching.reg
    mass: float = Matching.mass
    solver: ot.Solver = Matching.solver

    name: ClassVar[str] = "fedotp"
    title: ClassVar[str] = "FedOTP"
    reference: ClassVar[str] = "Li et al., CVPR 2024"

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

    @property
    def matching(self) -> Matching:
        """Optimal transport of patches onto prompts: scores are 1 - d_{C,k} up to a constant (Eq. 6 to 10)."""
        return Matching(rule=self.rule, reg=self.reg, mass=self.mass, solver=self.solver)

    def with_matching(self, matching: Matching) -> "FedOTP":
        """The same prompts, matched in another way."""
        if matching.rule == "pooled":
            raise FedotpError(f"FedOTP matches patches: its rule must be {alternatives(get_args(ot.Rule))}")
        return replace(self, rule=matching.rule, reg=matching.reg, mass=matching.mass, solver=matching.solver)

    def side_by_side(self, others: Sequence[Method]) -> tuple[Method, list[Parameters]] | None:
        """Also where only the mass differs."""
        if (together := super().side_by_side(others)) or not self.matching.has_mass:
            return together
        methods = [method for method in (self, *others) if type(method) is FedOTP]
        alike = {replace(method, mass=1.0) for method in methods}
        if len(methods) <= len(others) or len(alike) > 1:
            return None
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        masses = [torch.tensor(method.mass, dtype=torch.float64) for method in methods]
        return _EachItsMass(**{**options, "mass": 1.0}), [{_MASS: mass} for mass in masses]

    @property
    def global_part(self) -> "FedOTP | None":
        """The global prompts alone."""
        return replace(self, n_private=0) if self.n_shared else None

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


@dataclass(frozen=True)
class _EachItsMass(FedOTP):
    """FedOTP for clients with masses of their own, which are among their parameters; `mass` itself is 1."""

    @property
    def fixed(self) -> frozenset[str]:
        """The masses are given."""
        return frozenset({_MASS})

    def weights(self, task: Task, params: Parameters) -> Tensor:
        """The mass that each prompt takes, (C, N)."""
        n_prompts = self.n_shared + self.n_private
        return (params[_MASS] / n_prompts)[:, None].expand(-1, n_prompts)
