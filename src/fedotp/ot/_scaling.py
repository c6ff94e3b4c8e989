"""Fixed-point solvers: the paper's Algorithm 1, and the same iteration in the log domain."""

import torch
from torch import Tensor

from fedotp.ot._iterate import State, iterate
from fedotp.ot._problem import Problem, plan_at, start


def scaling(problem: Problem, tol: float, max_iter: int) -> tuple[Tensor, Tensor]:
    """Efficient scaling Dykstra (paper, Algorithm 1) on a linear problem, with its rule: mean |v - v_prev| < tol.

        u = min(a / Q v, 1),   v = b / Q' u,   Q = exp(-C / reg)

    The columns of Q are rescaled to maximum 1, which v absorbs; the stopping rule sees the paper's v. Products of Q
    and v need the range of float64 when reg is small: the caller chooses the precision.

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
    """The same iteration on f = log v, which neither over- nor underflows at any reg.

    Started where no row is limited; stops when |T'1 - b|_1 <= tol |b|_1. Returns f (P, N), iterations (P,).
    """

    def step(problem: Problem, state: State) -> tuple[State, Tensor]:
        (f,) = state
        column = plan_at(problem, f)[0].sum(-1)  # (P, N)
        done = (column - problem.b).abs().sum(-1) <= tol * problem.b.sum(-1)
        return (f + problem.ratio(column).log(),), done

    return iterate(step, problem, (start(problem),), max_iter)
