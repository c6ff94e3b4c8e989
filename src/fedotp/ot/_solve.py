"""`solve`, which checks the input, selects a solver, and returns plan, value, iterations and residual."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from fedotp._values import MOST, require_from, require_one_of
from fedotp.errors import FedotpError
from fedotp.ot import _problem
from fedotp.ot._newton import newton
from fedotp.ot._problem import LINEAR_SPREAD, Problem, plan_at
from fedotp.ot._scaling import batch_scaling, log_scaling, scaling

Rule = Literal["unbalanced", "classical", "average"]
Solver = Literal["newton", "scaling", "log", "batch"]

_SOLVERS: dict[Solver, Callable[[Problem, float, int], tuple[Tensor, Tensor]]] = {
    "newton": newton,
    "scaling": scaling,
    "log": log_scaling,
}
REG = 0.1  # the paper's lambda
MASS = 0.8  # the paper's gamma
SOLVER: Solver = "newton"
_LEAST = 1e-6  # of reg and mass: far below useful values, far above the limit of float32
MAX_ITER: dict[Solver, int] = {"newton": 200, "scaling": 100, "log": 10_000, "batch": 100}
_CPU_CHUNK = 2**23  # bytes of plans solved at a time, so that the working memory fits the cache (measured)
_CUDA_CHUNK = 2**29
_SCALING_FLOAT64_BELOW = 0.05  # exp(±2/reg) still fits float32 above this


@dataclass(frozen=True)
class Transport:
    """Result of `solve`; the leading shape (...) is that of the costs.

    Attributes:
        plan: (..., V, N) transport plan T, without gradient.
        iterations: (...) steps of the solver.

    `value`, `objective` and `residual` are computed on first use.
    """

    plan: Tensor
    iterations: Tensor
    _cost: Tensor
    _a: Tensor
    _b: Tensor
    _reg: float
    _rule: Rule

    def __repr__(self) -> str:
        return f"<Transport ({self._rule}): plan {tuple(self.plan.shape)}>"

    @cached_property
    def value(self) -> Tensor:
        """(...) <C, T>. Its gradient with respect to C is T: the plan is constant (paper, Section 4.2)."""
        return (self.plan * self._cost).sum((-2, -1))

    @cached_property
    def objective(self) -> Tensor:
        """(...) <C, T> + reg <T, log T>, the minimum of Eq. 7.

        Its gradient with respect to C is also T, and exact: by the envelope theorem changes of the plan have no
        first-order effect. (For the rule "average" it is not a minimum.)
        """
        return self.value - self._reg * torch.special.entr(self.plan).sum((-2, -1))

    @cached_property
    def residual(self) -> Tensor:
        """(...) violation of the constraints: (|T'1 - b|_1 + |(T1 - a)_+|_1) / |b|_1.

        For the classical problem the second term is |T1 - a|_1.
        """
        rows = self.plan.sum(-1) - self._a
        rows = rows.abs() if self._rule == "classical" else rows.clamp_min(0)
        columns = (self.plan.sum(-2) - self._b).abs()
        return (rows.sum(-1) + columns.sum(-1)) / self._b.sum(-1)


def solve(
    cost: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    rule: Rule = "unbalanced",
    reg: float = REG,
    mass: float | None = None,
    shares: Tensor | None = None,
    solver: Solver = SOLVER,
    tol: float | None = None,
    max_iter: int | None = None,
    counted: Tensor | None = None,
) -> Transport:
    """Solve entropic transport problems between V patches and N prompts, any number at a time.

    ``rule="unbalanced"`` (the paper's problem, Eq. 6 and 7):

        minimise <C, T> + reg <T, log T>   over T >= 0,  T 1 <= a,  T' 1 = b

    ``rule="classical"`` has T 1 = a instead (Eq. 3, entropic); ``rule="average"`` returns a b' / |a|_1, which ignores
    the costs, for ablations.

    The result of a problem does not depend on the others, except with the solver "batch".

    Args:
        cost: (..., V, N) costs, for example 1 - cosine similarity. float16 and bfloat16 are converted to float32.
            Prompt-major memory (the transpose of a contiguous (..., N, V) tensor) is read without a copy.
        a: (V,) or (..., V) maximum mass of each patch; default 1 / V.
        b: (N,) or (..., N) mass of each prompt; default `mass` / N. A prompt without mass is ignored.
        reg: entropic regularisation, the paper's lambda.
        mass: total mass if `b` is not given, the paper's gamma in (0, 1]; default 0.8, and 1 for classical.
        shares: (N,) or (..., N) shares of that mass for each prompt, summing to 1; default 1 / N. They are not checked,
            to avoid a GPU synchronisation.
        solver: "newton" on the N-dimensional dual (default: fewest steps, stable for any reg); "scaling", the paper's
            Algorithm 1; "log", the same iteration in the log domain; "batch", Algorithm 1 with the stopping rule of the
            authors' code, the mean over a batch of problems (all axes but the first).
        tol: "newton" and "log" stop when |T'1 - b|_1 <= tol |b|_1 (default 1e-5, in float64 1e-10);
            "scaling" and "batch" when mean |v - v_prev| < tol (default 1e-3, the paper's).
        max_iter: default 200 for "newton", 100 for "scaling" (the paper's) and "batch", 10,000 for "log".
        counted: (...) mask of the problems in the mean of "batch", for example without padding.

    Examples:
        >>> cost = 1 - torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.0, 0.0]])  # 3 patches, 2 prompts
        >>> solve(cost, mass=0.5, reg=0.05).plan.round(decimals=2)
        tensor([[0.2500, 0.0000],
                [0.0000, 0.2500],
                [0.0000, 0.0000]])

    References:
        Li et al., "Global and Local Prompts Cooperation via Optimal Transport for Federated Learning", CVPR 2024.
        Benamou et al., "Iterative Bregman projections for regularized transportation problems", SISC 2015.
        Chang et al., "CSOT: Curriculum and structure-aware optimal transport", NeurIPS 2023.
    """
    work = cost.detach().to(torch.promote_types(cost.dtype, torch.float32))
    a, b = marginals(work.shape, work.dtype, work.device, a, b, rule, mass, shares)
    require_reg(reg)
    require_one_of(Solver, "solver", solver)
    tol = default_tol(solver, work.dtype) if tol is None else tol
    max_iter = MAX_ITER[solver] if max_iter is None else max_iter
    if rule == "average":
        plan = (a.unsqueeze(-1) * b.unsqueeze(-2) / a.sum(-1)[..., None, None]).expand(cost.shape)
        iterations = torch.zeros(cost.shape[:-2], dtype=torch.long, device=cost.device)
    elif solver == "batch":
        scaled = [x.double() if reg < _SCALING_FLOAT64_BELOW else x for x in (work, a, b)]
        plan, iterations = batch_scaling(
            *scaled, reg=reg, tol=tol, max_iter=max_iter, equal_rows=rule == "classical", counted=counted
        )
        plan = plan.to(work.dtype)
    else:
        plan, iterations = _solve_batch(work, a, b, rule, reg, solver, tol, max_iter)
    return Transport(plan, iterations, cost, a, b, reg, rule)


def require_reg(reg: float) -> None:
    """Require a valid entropic regularisation."""
    require_from(_LEAST, MOST, "reg", reg, f" (the paper uses {REG})")


def require_mass(mass: float) -> None:
    """Require a valid share of the patches' mass."""
    require_from(_LEAST, 1, "mass", mass, f" (the paper uses {MASS})")


def default_tol(solver: Solver, dtype: torch.dtype) -> float:
    """Return the default tolerance of `solve`."""
    return 1e-3 if solver in ("scaling", "batch") else 1e-10 if dtype == torch.float64 else 1e-5


def _solve_batch(
    cost: Tensor, a: Tensor, b: Tensor, rule: Rule, reg: float, solver: Solver, tol: float, max_iter: int
) -> tuple[Tensor, Tensor]:
    """Flatten the batch and solve it in chunks; return plan (..., V, N) and iterations (...)."""
    *batch, n_patches, n_prompts = cost.shape
    flat = cost.mT.reshape(-1, n_prompts, n_patches).contiguous()  # no copy if memory is prompt-major
    a, b = (x.reshape(1, -1) if x.dim() == 1 else x.expand(*batch, -1).reshape(len(flat), -1) for x in (a, b))
    plan = torch.empty(flat.shape, dtype=cost.dtype, device=cost.device)
    iterations = torch.empty(len(flat), dtype=torch.long, device=cost.device)
    chunk = max(1, (_CUDA_CHUNK if cost.is_cuda else _CPU_CHUNK) // (n_patches * n_prompts * cost.element_size()))
    for first in range(0, len(flat), chunk):
        part = slice(first, first + chunk)
        rows, columns = (x if len(x) == 1 else x[part] for x in (a, b))
        problem = _problem.state(flat[part], rows, columns, reg, equal_rows=rule == "classical")
        for form, index in _forms(problem, solver, reg):
            f, iterations[part][index] = _SOLVERS[solver](form, tol, max_iter)
            solved, _ = plan_at(form, f)
            solved *= form.ratio(solved.sum(-1)).unsqueeze(-1)  # like Algorithm 1, end with exact columns
            plan[part][index] = solved.to(plan.dtype)
    return plan.view(*batch, n_prompts, n_patches).mT, iterations.view(batch)


def _forms(problem: Problem, solver: Solver, reg: float) -> Iterator[tuple[Problem, Tensor | slice]]:
    """Split problems by the form for their solver, which depends on each problem's spread."""
    if solver == "log":
        yield problem, slice(None)
    elif solver == "scaling":
        yield (problem.to_double() if reg < _SCALING_FLOAT64_BELOW else problem).to_linear(), slice(None)
    else:
        narrow = problem.spread <= LINEAR_SPREAD
        if narrow.all():
            yield problem.to_linear(), slice(None)
        else:
            for index in (narrow.nonzero().squeeze(1), (~narrow).nonzero().squeeze(1)):
                form = problem.take(index)
                yield (form.to_linear() if narrow[index].all() else form), index


def marginals(
    shape: torch.Size,
    dtype: torch.dtype,
    device: torch.device,
    a: Tensor | None,
    b: Tensor | None,
    rule: Rule,
    mass: float | None,
    shares: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Check marginals of costs of the shape (..., V, N) and return them with defaults."""
    require_one_of(Rule, "rule", rule)
    if len(shape) < 2 or 0 in shape[-2:]:
        raise FedotpError(f"cost has shape {tuple(shape)}: must be (..., V patches, N prompts), not empty")
    if mass is not None and (b is not None or rule == "classical"):
        raise FedotpError("mass must not be set with b, or in the classical problem, where it is |a|")
    if shares is not None and b is not None:
        raise FedotpError("shares must not be set with b, which already determines them")
    if mass is not None:
        require_mass(mass)
    *batch, n_patches, n_prompts = shape
    given = a is not None or b is not None
    if a is None:
        a = torch.full((n_patches,), 1 / n_patches, dtype=dtype, device=device)
    a = a.to(device, dtype).contiguous()
    if b is None:
        share = 1.0 if rule == "classical" else MASS if mass is None else mass
        total = a.sum(-1, keepdim=True) * share
        b = (total / n_prompts).expand(*a.shape[:-1], n_prompts) if shares is None else total * shares.to(device, dtype)
    b = b.to(device, dtype).contiguous()
    for name, x, size in (("a", a, n_patches), ("b", b, n_prompts)):
        if x.shape[-1:] != (size,) or (x.dim() > 1 and x.shape[:-1] != tuple(batch)):
            raise FedotpError(f"{name} has shape {tuple(x.shape)}: must be ({size},) or {(*batch, size)}")
    if not given:
        return a, b
    if (a < 0).any() or (b < 0).any() or (b.sum(-1) <= 0).any():
        raise FedotpError("a and b must not be negative, and b must not be all 0")
    excess = b.sum(-1) / a.sum(-1) - 1
    slack = 64 * torch.finfo(a.dtype).eps
    if (excess > slack).any() or (rule == "classical" and (excess < -slack).any()):
        relation = "equal" if rule == "classical" else "not exceed"
        raise FedotpError(f"the total of b must {relation} the total of a (off by {excess.abs().max():.3g})")
    return a, b
