"""The transport problem in the form that all solvers use.

    minimise    <C, T> + reg <T, log T>                                             (paper, Eq. 7)
    subject to  T >= 0,  T 1 <= a  (rows: patches),  T' 1 = b  (columns: prompts)   (Eq. 6)

Its solution is T = diag(u) exp(-C / reg) diag(v) with u = min(a / Qv, 1) (Eq. 9), determined by N numbers f = log v: a
row of exp(f - C / reg) whose sum exceeds a_i is scaled to a_i. In a classical problem (T 1 = a) every row is scaled to
a_i: the same formula without the 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

# Products of exp(-C / reg) and exp(f) fit float32 if the exponents of a problem differ by less than this.
LINEAR_SPREAD = 60.0
FILLED_FROM_DEVIATION = 2.5  # above this `_filled` saves steps (measured)


@dataclass(frozen=True)
class Problem:
    """P transport problems, prompt-major: the V patches are contiguous in memory.

    Attributes:
        kernel: (P, N, V) -C / reg - shift, or its exponential if `linear`; the maximum of a column is 0, or 1.
        shift:  (P, N) the largest -C / reg of every column.
        spread: (P,) minus the smallest exponent.
        filled: (P, N) alternative start, see `_filled`; -inf if it does not help.
        a:      (P or 1, V) row marginals.
        b:      (P or 1, N) column marginals; a column without mass has f = -inf and is ignored.
        cap:    (P or 1, 1) the 1 in min(a / Qv, 1); infinite if rows must equal a.
        work:   (2, P, N, V) scratch memory, as allocation in every step would cost more than the arithmetic.
        some_classical: any cap is infinite.
        linear: the kernel is exponentiated, which is faster but requires a small spread.
    """

    kernel: Tensor
    shift: Tensor
    spread: Tensor
    filled: Tensor
    a: Tensor
    b: Tensor
    cap: Tensor
    work: Tensor
    some_classical: bool
    linear: bool = False

    def __len__(self) -> int:
        return self.kernel.shape[0]

    @property
    def taking(self) -> Tensor:
        """Mask of the columns (P or 1, N) with mass."""
        return self.b > 0

    def ratio(self, column: Tensor) -> Tensor:
        """Return b divided by the columns' sums (P, N); 1 for columns without mass."""
        return torch.where(self.taking, self.b / column, 1.0)

    def take(self, index: Tensor) -> "Problem":
        """Return the problems at `index`; marginals shared by all problems remain shared."""
        alone = len(self) == 1
        return self._map(lambda x: x[index] if len(x) > 1 or alone else x)

    def to_linear(self) -> "Problem":
        """Return a copy with the exponentiated kernel."""
        return replace(self, kernel=self.kernel.exp(), linear=True)

    def to_double(self) -> "Problem":
        """Return a copy in float64."""
        return self._map(Tensor.double)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Problem":
        names = ("kernel", "shift", "spread", "filled", "a", "b", "cap")
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in names}
        kernel = changed["kernel"]
        return replace(self, **changed, work=kernel.new_empty((2, *kernel.shape)))


def state(cost: Tensor, a: Tensor, b: Tensor, reg: float, equal_rows: bool) -> Problem:
    """Create problems from prompt-major costs (P, N, V) and marginals (P or 1, V), (P or 1, N).

    A problem whose prompts take all mass (sum b = sum a) is the classical problem and is treated as one, because
    without this its dual has no unique solution.
    """
    kernel = cost * (-1.0 / reg)  # (P, N, V)
    shift = kernel.amax(-1)  # (P, N)
    kernel -= shift.unsqueeze(-1)
    spread = kernel.flatten(1).amin(-1).neg()
    tight = b.sum(-1, keepdim=True) >= a.sum(-1, keepdim=True) * (1 - 8 * torch.finfo(cost.dtype).eps)
    cap = torch.ones_like(tight, dtype=cost.dtype).masked_fill(tight | equal_rows, torch.inf)
    return Problem(
        kernel=kernel,
        shift=shift,
        spread=spread,
        filled=_filled(kernel, spread, a, b, cap),
        a=a,
        b=b,
        cap=cap,
        work=kernel.new_empty((2, *kernel.shape)),
        some_classical=bool(cap.isinf().any()),
    )


def _filled(kernel: Tensor, spread: Tensor, a: Tensor, b: Tensor, cap: Tensor) -> Tensor:
    """Return dual variables (P, N) for which the rows above the (1 - mass) quantile of the exponents are full.

    This assumes normally distributed exponents in a column. For a large spread it is a better start than u = 1, which
    concentrates the mass on few patches.
    """
    shape, size = kernel.shape[:2], kernel.shape[2]
    if (spread <= 2 * FILLED_FROM_DEVIATION).all():  # no deviation exceeds half the spread
        return kernel.new_full(shape, -torch.inf)
    mean = kernel.mean(-1)
    square = torch.linalg.vector_norm(kernel, dim=-1).square() / size
    deviation = (square - mean.square()).clamp_min(0).sqrt()  # (P, N)
    total = b.sum(-1, keepdim=True)
    quantile = torch.special.ndtri((1 - total / a.sum(-1, keepdim=True)).clamp_min(1e-3))
    filled = (a.mean(-1, keepdim=True) * b / total).log() - mean - quantile * deviation
    return filled.masked_fill((deviation <= FILLED_FROM_DEVIATION) | cap.isinf(), -torch.inf)


def start(problem: Problem) -> Tensor:
    """Return initial dual variables (P, N): the solution without limits of rows (u = 1), or `filled` if higher."""
    kernel = problem.kernel if problem.linear else problem.kernel.exp()
    return torch.maximum(problem.b.log() - kernel.sum(-1).log(), problem.filled)


def plan_at(problem: Problem, f: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the plan of dual variables f (P, N).

    Returns:
        plan (P, N, V), in memory that the next call overwrites, and full (P, V): 1 for rows whose sum is a_i, else 0.
    """
    plan = problem.work[0]
    if problem.linear:
        # The clamp keeps trial steps far beyond the solution finite.
        torch.mul(problem.kernel, f.clamp_max(LINEAR_SPREAD + 20).exp().unsqueeze(-1), out=plan)
        ratio = problem.a / _row_sums(plan)  # (P, V) a / Qv
        plan *= torch.minimum(ratio, problem.cap).unsqueeze(1)
        return plan, ratio.le_(problem.cap)
    # With m_i = max(log a_i, max_j L_ij) and L = f + kernel, T_ij = a_i e_ij / max(1, sum_k e_ik) with
    # e = exp(L - m) <= 1, which does not overflow for any reg.
    torch.add(problem.kernel, f.unsqueeze(-1), out=plan)
    floor = problem.a.log() - problem.cap.log()  # -inf if rows must equal a
    plan -= torch.maximum(plan.amax(1), floor).unsqueeze(1)
    plan.exp_()
    row = _row_sums(plan)
    plan *= (problem.a / row.clamp_min(1)).unsqueeze(1)
    return plan, row.ge_(1)  # above the floor, the largest entry of a row is exactly 1


def _row_sums(plan: Tensor) -> Tensor:
    """Sum over prompts: (P, N, V) -> (P, V). Adding slices is faster than a reduction over a short axis."""
    total = plan[:, 0].clone()
    for column in plan[:, 1:].unbind(1):
        total += column
    return total


State = tuple[Tensor, ...]
Step = Callable[[Problem, State], tuple[State, Tensor]]


def iterate(step: Step, problem: Problem, state: State, max_iter: int) -> tuple[Tensor, Tensor]:
    """Apply `step` until every problem is done.

    `step(problem, state)` returns the next state and a mask (P,) of finished problems. The first tensor of a state is
    the iterate f (P, N). A problem's result is that of the step in which it finished; finished problems are removed
    when they are at least half of all.

    Returns:
        f (P, N) and the number of steps of each problem (P,); `max_iter` if it did not finish.
    """
    f = state[0].clone()
    steps = torch.full((len(problem),), max_iter, device=f.device)
    index = torch.arange(len(problem), device=f.device)
    open_ = torch.ones_like(index, dtype=torch.bool)
    for n in range(1, max_iter + 1):
        state, done = step(problem, state)
        ending = open_ & done if n < max_iter else open_
        f[index[ending]] = state[0][ending]
        steps[index[ending]] = n
        open_ = open_ & ~ending
        left = int(open_.sum())
        if left == 0:
            break
        if left <= len(open_) // 2:
            keep = open_.nonzero().squeeze(1)
            problem, index, open_ = problem.take(keep), index[keep], open_[keep]
            state = tuple(x[keep] for x in state)
    return f, steps
