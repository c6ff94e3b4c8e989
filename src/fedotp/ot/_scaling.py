"""Fixed-point solvers: the paper's Algorithm 1, also in the log domain and with a common stop for a batch."""

import torch
from torch import Tensor

from fedotp.ot._problem import Problem, State, iterate, plan_at, start


def scaling(problem: Problem, tol: float, max_iter: int) -> tuple[Tensor, Tensor]:
    """Solve a linear problem by efficient scaling Dykstra (paper, Algorithm 1), until mean |v - v_prev| < tol.

        u = min(a / Q v, 1),   v = b / Q' u,   Q = exp(-C / reg)

    The columns of Q are rescaled to maximum 1, which v absorbs; the stopping rule uses the paper's v. For small reg
    products of Q and v need the range of float64: the caller chooses the precision.

    Returns f = log v (P, N) for the rescaled Q, and the iterations (P,).
    """
    unscale = problem.shift.neg().exp()  # (P, N): v of the paper = v * unscale

    def step(problem: Problem, state: State) -> tuple[State, Tensor]:
        _, v, unscale = state
        u = problem.a / (problem.kernel * v.unsqueeze(-1)).sum(1)  # (P, V)
        u = torch.minimum(u, problem.cap)
        new = problem.b / (problem.kernel * u.unsqueeze(1)).sum(-1)
        done = ((new - v).abs() * unscale).sum(-1) < tol * problem.taking.sum(-1)
        return (new.log(), new, unscale), done

    v = torch.where(problem.taking, problem.shift.exp(), 0.0)  # the paper starts at v = 1
    return iterate(step, problem, (v.log(), v, unscale), max_iter)


def log_scaling(problem: Problem, tol: float, max_iter: int) -> tuple[Tensor, Tensor]:
    """Solve by the same iteration on f = log v, which neither over- nor underflows for any reg.

    It starts without limits of rows and stops when |T'1 - b|_1 <= tol |b|_1. Returns f (P, N), iterations (P,).
    """

    def step(problem: Problem, state: State) -> tuple[State, Tensor]:
        (f,) = state
        column = plan_at(problem, f)[0].sum(-1)  # (P, N)
        done = (column - problem.b).abs().sum(-1) <= tol * problem.b.sum(-1)
        return (f + problem.ratio(column).log(),), done

    return iterate(step, problem, (start(problem),), max_iter)


def batch_scaling(
    cost: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    reg: float,
    tol: float,
    max_iter: int,
    equal_rows: bool = False,
    counted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scale until mean |v - v_prev| < tol over all problems of a batch, so that plans depend on the batch.

        u = min(a / Q v, 1),   v = b / Q' u,   Q = exp(-C / reg),   T = diag(u) Q diag(v)

    A batch is one index of the first axis of `cost` (G, ..., V, N), one client's images and classes, or a single
    problem (V, N). `a` is (V,) or (G, ..., V), `b` likewise. `counted` (G, ...) is a mask of the problems in the mean,
    by default (also if a batch has none) all. The 1 remains for any mass; with all mass convergence is very slow.

    Returns plan (G, ..., V, N) and iterations (G, ...), the same within a batch.
    """
    kernel = torch.exp(-cost / reg)
    if cost.dim() == 2:
        kernel = kernel[None]
    inner = tuple(range(1, kernel.dim() - 2))
    cap = torch.inf if equal_rows else 1.0
    weight = _weights(kernel, counted, inner)  # (G, ...)
    u = torch.ones_like(kernel[..., 0])  # (G, ..., V)
    taking = (b > 0).expand(kernel.shape[:-2] + b.shape[-1:])  # prompts without mass are ignored
    v = taking.to(kernel.dtype)  # (G, ..., N)
    steps = torch.full(kernel.shape[:1], max_iter, device=cost.device)
    open_ = torch.ones_like(steps, dtype=torch.bool)
    for n in range(1, max_iter + 1):
        new_u = (a / (kernel * v.unsqueeze(-2)).sum(-1)).clamp_max(cap)
        new_v = b / (kernel * new_u.unsqueeze(-1)).sum(-2)
        moved = (new_v - v).abs().sum(-1) / taking.sum(-1)
        moved = (moved * weight).sum(inner) if inner else moved  # (G,)
        going = open_.view(-1, *[1] * (kernel.dim() - 2))
        u, v = torch.where(going, new_u, u), torch.where(going, new_v, v)
        steps = torch.where(open_ & (moved < tol), n, steps)
        open_ = open_ & (moved >= tol)
        if not cost.is_cuda and not open_.any():  # without synchronisation, a CUDA graph can capture the work
            break
    plan = u.unsqueeze(-1) * kernel * v.unsqueeze(-2)
    iterations = steps.view(-1, *[1] * len(inner)).expand(kernel.shape[:-2])
    return (plan, iterations) if cost.dim() > 2 else (plan[0], iterations[0])


def _weights(kernel: Tensor, counted: Tensor | None, inner: tuple[int, ...]) -> Tensor:
    """Return the weight (G, ...) of each problem in the mean of its batch."""
    weight = torch.ones_like(kernel[..., 0, 0])
    if counted is not None:
        some = counted.flatten(1).any(1).view(-1, *[1] * len(inner))
        weight = torch.where(some, counted.to(weight.dtype), weight)
    return weight / weight.sum(inner, keepdim=True) if inner else weight
