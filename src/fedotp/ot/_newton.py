"""Newton's method on the dual, a concave problem in N unknowns.

With T(f) the plan of `plan_at`, the dual's gradient is g = b - T'1 and minus its Hessian is
H = diag(T'1) - sum over full rows of T_i T_i' / a_i. One iteration evaluates one trial point:

- the step solves (H + 0.01 |g|_1 I) d = g. The ridge limits the step if all rows near a prompt are full and the dual is
  almost flat; it vanishes with the residual, so that convergence remains quadratic;
- a trial is accepted unless the slope along d has reversed by more than half its size; else the step is shortened to
  the zero of a line through both slopes. The test uses gradients only, because float32 rounding dominates differences
  of dual values.
"""

import torch
from torch import Tensor

from fedotp.ot._problem import Problem, State, iterate, plan_at, start

RIDGE = 0.01  # these three are also used by the GPU kernel
OVERSHOOT = 0.5
SHORTEN = (0.1, 0.5)


def newton(problem: Problem, tol: float, max_iter: int) -> tuple[Tensor, Tensor]:
    """Solve to |T'1 - b|_1 <= tol |b|_1. Returns f (P, N) and the iterations (P,)."""
    f = start(problem)
    reach = 5 + problem.spread  # (P,) about the maximum distance of a solution from `start`

    def step(problem: Problem, state: State) -> tuple[State, Tensor]:
        f, direction, slope, length, reach = state
        trial = f + length.unsqueeze(-1) * direction
        gradient, hessian = _derivatives(problem, trial)
        turned = (gradient * direction).sum(-1)
        residual = gradient.abs().sum(-1)
        done = residual <= tol * problem.b.sum(-1)
        accept = (turned >= -OVERSHOOT * slope) | done
        length = torch.where(accept, 1.0, length * (slope / (slope - turned)).clamp(*SHORTEN))
        fresh = _direction(problem, gradient, hessian, residual, reach)
        keep = accept.unsqueeze(-1)
        f, direction = torch.where(keep, trial, f), torch.where(keep, fresh, direction)
        slope = torch.where(accept, (gradient * fresh).sum(-1), slope)
        return (f, direction, slope, length, reach), done

    zero = torch.zeros_like(reach)
    return iterate(step, problem, (f, torch.zeros_like(f), zero, zero, reach), max_iter)


def _derivatives(problem: Problem, f: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the gradient b - T'1 (P, N) and minus the Hessian (P, N, N) of the dual at f."""
    plan, full = plan_at(problem, f)
    column = plan.sum(-1)  # (P, N)
    weight = full.mul_(problem.a.reciprocal().nan_to_num(posinf=0))  # (P, V)
    weighted = torch.mul(plan, weight.unsqueeze(1), out=problem.work[1])
    hessian = torch.diag_embed(column) - weighted @ plan.mT
    return problem.b - column, hessian


def _direction(problem: Problem, gradient: Tensor, hessian: Tensor, residual: Tensor, reach: Tensor) -> Tensor:
    """Compute the regularised Newton step (P, N), at most `reach` in any coordinate."""
    matrix = hessian
    if problem.some_classical:
        # A classical problem's dual is constant along f + constant: regularise that direction.
        classical = problem.cap.squeeze(-1).isinf()  # (P or 1,)
        constant = torch.where(classical, hessian.diagonal(dim1=-2, dim2=-1).amax(-1), 0)
        taking = problem.taking.to(gradient.dtype)
        mean = torch.where(classical, gradient.sum(-1) / taking.sum(-1), 0)
        gradient = gradient - mean.unsqueeze(-1) * taking
        matrix = hessian + constant[:, None, None] * taking.unsqueeze(-1) * taking.unsqueeze(-2)
    ridge = RIDGE * residual.unsqueeze(-1) + 4 * torch.finfo(gradient.dtype).eps * problem.b  # (P, N)
    ridge = torch.where(problem.taking, ridge, 1.0)  # a column without mass has zero derivatives and does not move
    step = _solve(matrix + torch.diag_embed(ridge), gradient)
    longest = step.abs().amax(-1).clamp_min(torch.finfo(step.dtype).tiny)
    return step * (reach / longest).clamp_max(1).unsqueeze(-1)


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve systems (P, N, N), for two prompts by Cramer's rule without factorisation."""
    if right.shape[-1] != 2:
        return torch.linalg.solve_ex(matrix, right)[0]
    (p, m), (_, q) = (row.unbind(-1) for row in matrix.unbind(-2))  # [[p, m], [m, q]]
    x, y = right.unbind(-1)
    return torch.stack([q * x - m * y, p * y - m * x], dim=-1) / (p * q - m * m).unsqueeze(-1)
