"""The transport problem in the form every solver works on.

    minimise    <C, T> + reg <T, log T>                                             (paper, Eq. 7)
    subject to  T >= 0,  T 1 <= a  (rows: patches),  T' 1 = b  (columns: prompts)   (Eq. 6)

Its solution is T = diag(u) exp(-C / reg) diag(v) with u = min(a / Qv, 1) (Eq. 9), so N numbers f = log v determine
it: a row of exp(f - C / reg) is kept where its sum is at most a_i and scaled down to a_i where it is not. In a
classical problem (T 1 = a) every row is scaled to a_i: the same formula without the 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

# Products of exp(-C / reg) and exp(f) stay inside float32 while the exponents of a problem differ by less than this.
LINEAR_SPREAD = 60.0
FILLED_FROM_DEVIATION = 2.5  # where the second start of `start` saves steps (measured)


@dataclass(frozen=True)
class Problem:
    """P transport problems, prompt-major: the V patches lie contiguous in memory.

    Attributes:
        kernel: (P, N, V) -C / reg - shift, or the exponential of that if `linear`; largest entry of a column 0, or 1.
        shift:  (P, N) the largest -C / reg of every column.
        spread: (P,) minus the smallest exponent.
        a:      (P or 1, V) row marginals.
        b:      (P or 1, N) column marginals.
        cap:    (P or 1, 1) the 1 in min(a / Qv, 1); infinite where rows must equal a.
        linear: whether the kernel is exponentiated: faster, but it needs a small spread.
    """

    kernel: Tensor
    shift: Tensor
    spread: Tensor
    a: Tensor
    b: Tensor
    cap: Tensor
    linear: bool = False

    def __len__(self) -> int:
        return self.kernel.shape[0]

    def take(self, index: Tensor) -> "Problem":
        """The problems at `index`; marginals shared by all problems stay shared."""
        alone = len(self) == 1
        return self._map(lambda x: x[index] if len(x) > 1 or alone else x)

    def to_linear(self) -> "Problem":
        """The same problems with the kernel exponentiated."""
        return replace(self, kernel=self.kernel.exp(), linear=True)

    def to_double(self) -> "Problem":
        """The same problems in float64."""
        return self._map(Tensor.double)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Problem":
        return Problem(
            kernel=change(self.kernel),
            shift=change(self.shift),
            spread=change(self.spread),
            a=change(self.a),
            b=change(self.b),
            cap=change(self.cap),
            linear=self.linear,
        )


def state(cost: Tensor, a: Tensor, b: Tensor, reg: float, equal_rows: bool) -> Problem:
    """Bring prompt-major costs (P, N, V) and marginals (P or 1, V), (P or 1, N) into solver form.

    A problem whose prompts ask for all the mass there is (sum b = sum a) leaves its rows no slack; it is the
    classical problem, and is treated as one, because its dual has no unique solution otherwise.
    """
    kernel = cost * (-1.0 / reg)  # (P, N, V)
    shift = kernel.amax(-1)  # (P, N)
    kernel -= shift.unsqueeze(-1)
    spread = kernel.flatten(1).amin(-1).neg()
    tight = b.sum(-1, keepdim=True) >= a.sum(-1, keepdim=True) * (1 - 8 * torch.finfo(cost.dtype).eps)
    cap = torch.ones_like(tight, dtype=cost.dtype).masked_fill(tight | equal_rows, torch.inf)
    return Problem(kernel, shift, spread, a, b, cap)


def start(problem: Problem) -> Tensor:
    """Dual variables (P, N) to start from.

    Where exponents differ little, the solution if no row were limited (u = 1). Where they differ much, few patches
    would hold that solution's mass; then, if it is higher, the value at which the rows above the (1 - mass)
    quantile of normally distributed exponents are full.
    """
    a, b = problem.a, problem.b
    kernel = problem.kernel if problem.linear else problem.kernel.exp()
    unlimited = b.log() - kernel.sum(-1).log()
    if (problem.spread <= 2 * FILLED_FROM_DEVIATION).all():  # no deviation exceeds half the spread
        return unlimited
    exponent = problem.kernel.log() if problem.linear else problem.kernel
    mean = exponent.mean(-1)
    square = torch.linalg.vector_norm(exponent, dim=-1).square() / exponent.shape[-1]
    deviation = (square - mean.square()).clamp_min(0).sqrt()  # (P, N)
    total = b.sum(-1, keepdim=True)
    quantile = torch.special.ndtri((1 - total / a.sum(-1, keepdim=True)).clamp_min(1e-3))
    filled = (a.mean(-1, keepdim=True) * b / total).log() - mean - quantile * deviation
    spread_out = (deviation > FILLED_FROM_DEVIATION) & problem.cap.isfinite()
    return torch.where(spread_out, torch.maximum(unlimited, filled), unlimited)


def plan_at(problem: Problem, f: Tensor) -> tuple[Tensor, Tensor]:
    """The plan with dual variables f (P, N), and which of its rows are full.

    Returns:
        plan (P, N, V), and full (P, V): 1 for the rows whose sum is a_i, 0 for the others.
    """
    if problem.linear:
        # Only a trial step far beyond the solution can reach the clamp, which keeps it finite.
        plan = problem.kernel * f.clamp_max(LINEAR_SPREAD + 20).exp().unsqueeze(-1)  # (P, N, V)
        ratio = problem.a / _row_sums(plan)  # (P, V) a / Qv
        plan *= torch.minimum(ratio, problem.cap).unsqueeze(1)
        return plan, ratio.le_(problem.cap)
    # With m_i = max(log a_i, max_j L_ij) and L = f + kernel, T_ij = a_i e_ij / max(1, sum_k e_ik) where
    # e = exp(L - m) <= 1: nothing overflows at any reg.
    plan = problem.kernel + f.unsqueeze(-1)
    floor = problem.a.log() - problem.cap.log()  # -inf where rows must equal a
    plan -= torch.maximum(plan.amax(1), floor).unsqueeze(1)
    plan.exp_()
    row = _row_sums(plan)
    plan *= (problem.a / row.clamp_min(1)).unsqueeze(1)
    return plan, row.ge_(1)  # above the floor, the largest entry of a row is exactly 1


def _row_sums(plan: Tensor) -> Tensor:
    """Sum over the few prompts: (P, N, V) -> (P, V). Adding whole slices beats a reduction over a short axis."""
    total = plan[:, 0].clone()
    for column in plan[:, 1:].unbind(1):
        total += column
    return total
