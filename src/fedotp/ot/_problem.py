"""The transport problem in the form every solver works on.

    minimise    <C, T> + reg <T, log T>                                      (paper, Eq. 7)
    subject to  T >= 0,  T 1 <= a  (rows: patches),  T' 1 = b  (columns: prompts)   (Eq. 6)

Its solution is T = diag(u) exp(-C / reg) diag(v) with u <= 1 (Eq. 9), so N numbers f = log v determine it:
row i of exp(f - C_i / reg) is kept where its sum is at most a_i and scaled down to a_i where it is not.
Rows of a classical problem (T 1 = a) are always scaled to a_i: the same code with no floor under the row sum.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Problem:
    """P transport problems, prompt-major: the V patches lie contiguous in memory.

    Attributes:
        exponent: (P, N, V) -C / reg, shifted so that every column's maximum is 0.
        shift:    (P, N) what was subtracted: exponent = -C / reg - shift.
        a:        (P or 1, V) row marginals.
        b:        (P or 1, N) column marginals.
        floor:    (P or 1, V) log a where rows may stay below a, -inf where they must equal it.
    """

    exponent: Tensor
    shift: Tensor
    a: Tensor
    b: Tensor
    floor: Tensor

    def __len__(self) -> int:
        return self.exponent.shape[0]

    def take(self, index: Tensor | slice) -> "Problem":
        """The problems at `index`; marginals shared by all problems stay shared."""

        def pick(x: Tensor) -> Tensor:
            return x if x.shape[0] == 1 else x[index]

        return Problem(self.exponent[index], self.shift[index], pick(self.a), pick(self.b), pick(self.floor))

    def double(self) -> "Problem":
        """The same problems in float64."""
        return replace(self, **{name: getattr(self, name).double() for name in self.__dataclass_fields__})


def state(cost: Tensor, a: Tensor, b: Tensor, reg: float, equal_rows: bool) -> Problem:
    """Bring costs (P, V, N) and marginals (P or 1, V), (P or 1, N) into solver form.

    A problem whose prompts ask for all the mass there is (sum b = sum a) leaves its rows no slack; it is the
    classical problem, and is treated as one, because its dual has no unique solution otherwise.
    """
    exponent = cost.mT.contiguous() * (-1.0 / reg)  # (P, N, V)
    shift = exponent.amax(-1)  # (P, N)
    exponent -= shift.unsqueeze(-1)
    total_a, total_b = a.sum(-1, keepdim=True), b.sum(-1, keepdim=True)  # (P or 1, 1)
    tight = total_b >= total_a * (1 - 8 * torch.finfo(cost.dtype).eps)
    floor = a.log().masked_fill(tight | equal_rows, -torch.inf)
    return Problem(exponent, shift, a, b, floor)


def plan_at(problem: Problem, f: Tensor) -> tuple[Tensor, Tensor]:
    """The plan with dual variables f (P, N), and which of its rows are full.

    With m_i = max(log a_i, max_j L_ij) and L = f + exponent, T_ij = a_i e_ij / max(1, sum_k e_ik) where
    e = exp(L - m) <= 1, so nothing overflows at any reg. This is min(a / Qv, 1) of Eq. 9 without Q or v.

    Returns:
        plan (P, N, V) and full (P, V): the rows whose sum is a_i.
    """
    logits = problem.exponent + f.unsqueeze(-1)  # (P, N, V)
    logits -= torch.maximum(logits.amax(1), problem.floor).unsqueeze(1)
    plan = logits.exp_()
    row = plan.sum(1)  # (P, V)
    full = row >= 1  # the largest entry of a row above its floor is exactly 1
    plan *= (problem.a / row.clamp_min(1)).unsqueeze(1)
    return plan, full


def start(problem: Problem) -> Tensor:
    """The dual variables (P, N) that would solve the problem if no row were limited (u = 1)."""
    return problem.b.log() - problem.exponent.exp().sum(-1).log()
