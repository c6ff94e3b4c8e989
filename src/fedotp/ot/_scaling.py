"""Fixed-point solvers: the paper's Algorithm 1, and the same iteration in the log domain."""

import torch
from torch import Tensor

from fedotp.ot._iterate import State, iterate
from fedotp.ot._problem import Problem, plan_at, start


def scaling(problem: Problem, tol: float, max_iter: int) -> tuple[Tensor, Tensor]:
    """Efficient scaling Dykstra (paper, Algorithm 1), with its own stopping rule: mean |v - v_prev| < tol.

        u = min(a / Q v, 1),   v = b / Q' u,   Q = exp(-C / reg)

    Only the columns of Q are rescaled to maximum 1, which v absorbs; the stopping rule sees the paper's v.
    Products of Q and v need the range of float64 when reg is small: the caller chooses the precision.

    Returns f = log v (P, N) for the rescaled Q, and the iterations (P,).
    """
    Q = problem.exponent.exp()  # (P, N, V)
    unscale = problem.shift.neg().exp()  # (P, N): v of the paper = v * unscale

    def step(problem: Problem, state: State) -> tuple[State, Tensor]:
        _, v, Q, unscale = state
        row = (Q * v.unsqueeze(-1)).sum(1)  # (P, V) Q v
        u = problem.a / row
        u = torch.where(problem.floor.isneginf(), u, u.clamp_max(1))  # rows that must equal a are never slack
        new = problem.b / (Q * u.unsqueeze(1)).sum(-1)
        done = ((new - v).abs() * unscale).mean(-1) < tol
        return (new.log(), new, Q, unscale), done

    v = problem.shift.exp()  # the paper starts at v = 1
    return iterate(step, problem, (v.log(), v, Q, unscale), max_iter)


def log_scaling(problem: Problem, tol: float, max_iter: int) -> tuple[Tensor, Tensor]:
    """The same iteration on f = log v, which neither over- nor underflows at any reg.

    Started where no row is limited; stops when |T'1 - b|_1 <= tol |b|_1. Returns f (P, N), iterations (P,).
    """

    def step(problem: Problem, state: State) -> tuple[State, Tensor]:
        (f,) = state
        column = plan_at(problem, f)[0].sum(-1)  # (P, N)
        done = (column - problem.b).abs().sum(-1) <= tol * problem.b.sum(-1)
        return (f + (problem.b / column).log(),), done

    return iterate(step, problem, (start(problem),), max_iter)
