"""Scores as an exportable graph (`torch.export`, ONNX): one loop over plain tensor operations.

This is `_newton`'s iteration in the log domain, which does not overflow for any reg, with operations of ONNX only:
solved problems remain in the batch, and small systems are solved by elimination.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from fedotp.ot._newton import OVERSHOOT, RIDGE, SHORTEN

TOL = 1e-5  # that of `solve` in float32
MAX_ITER = 200
_WANTED: ContextVar[bool] = ContextVar("as_graph", default=False)


@contextmanager
def as_graph() -> Iterator[None]:
    """Make `score` exportable by `torch.export` within the block, for any solver."""
    token = _WANTED.set(True)
    try:
        yield
    finally:
        _WANTED.reset(token)


def is_graph() -> bool:
    """True within a block of `as_graph`."""
    return _WANTED.get()


def graph_score(similarity: Tensor, reg: float, mass: float | None, shares: Tensor | None = None) -> Tensor:
    """Compute <T, S> of every problem (...) for similarities (..., V, N); `mass` None is classical (T 1 = a).

    `shares` (N,) or (..., N) are the prompts' shares of the mass, summing to 1; equal by default.
    """
    from torch._higher_order_ops import while_loop  # not in all supported versions of torch

    n_patches, n_prompts = similarity.shape[-2:]
    work = similarity.to(torch.promote_types(similarity.dtype, torch.float32))
    eps = torch.finfo(work.dtype).eps
    classical = mass is None or mass >= 1 - 8 * eps  # as in `_problem.state`
    each = work.new_full((n_prompts,), 1 / n_prompts) if shares is None else shares.to(work.dtype)
    b = each * (1.0 if mass is None else mass)  # (N,) or (..., N)
    kernel = (work - 1) / reg
    kernel = kernel - kernel.amax(-2, keepdim=True)  # (..., V, N)
    f = b.log() - kernel.exp().sum(-2).log()  # (..., N): the solution if no row were limited
    taking = (b > 0).to(work.dtype)
    reach = 5 - kernel.amin((-2, -1))  # (...)
    zero = torch.zeros_like(reach)

    def going(f: Tensor, direction: Tensor, slope: Tensor, length: Tensor, worst: Tensor, n: Tensor) -> Tensor:
        return (worst > TOL) & (n < MAX_ITER)

    def step(
        f: Tensor, direction: Tensor, slope: Tensor, length: Tensor, worst: Tensor, n: Tensor
    ) -> tuple[Tensor, ...]:
        trial = f + length.unsqueeze(-1) * direction
        plan, full = _plan_at(kernel, trial, 1 / n_patches, classical)
        column = plan.sum(-2)
        gradient = b - column
        hessian = torch.diag_embed(column) - n_patches * (plan * full).mT @ plan
        turned = (gradient * direction).sum(-1)
        residual = gradient.abs().sum(-1)
        accept = (turned >= -OVERSHOOT * slope) | (residual <= TOL * b.sum(-1))
        shorter = length * (slope / torch.where(accept, 1.0, slope - turned)).clamp(*SHORTEN)
        if classical:  # the dual is constant along f + constant: regularise that direction
            gradient = gradient - (gradient.sum(-1) / taking.sum(-1)).unsqueeze(-1) * taking
            constant = hessian.diagonal(dim1=-2, dim2=-1).amax(-1)
            hessian = hessian + constant[..., None, None] * taking.unsqueeze(-1) * taking.unsqueeze(-2)
        ridge = torch.where(taking > 0, RIDGE * residual.unsqueeze(-1) + 4 * eps * b, 1.0)
        fresh = _solved(hessian + torch.diag_embed(ridge), gradient)
        longest = fresh.abs().amax(-1).clamp_min(torch.finfo(work.dtype).tiny)
        fresh = fresh * (reach / longest).clamp_max(1).unsqueeze(-1)
        keep = accept.unsqueeze(-1)
        return (
            torch.where(keep, trial, f),
            torch.where(keep, fresh, direction),
            torch.where(accept, (gradient * fresh).sum(-1), slope),
            torch.where(accept, 1.0, shorter),
            (residual / b.sum(-1)).max(),
            n + 1,
        )

    begin = (f, torch.zeros_like(f), zero, zero.clone(), work.new_ones(()), torch.zeros((), dtype=torch.int64))
    f = while_loop(going, step, begin)[0]
    plan, _ = _plan_at(kernel, f, 1 / n_patches, classical)
    column = plan.sum(-2)
    plan = plan * torch.where(taking > 0, b / torch.where(column > 0, column, 1.0), 1.0).unsqueeze(-2)
    return (plan * work).sum((-2, -1))


def _plan_at(kernel: Tensor, f: Tensor, a: float, classical: bool) -> tuple[Tensor, Tensor]:
    """Compute `_problem.plan_at`: the plan (..., V, N), and (..., V, 1), 1 for full rows, else 0."""
    exponent = kernel + f.unsqueeze(-2)
    highest = exponent.amax(-1, keepdim=True)
    if not classical:
        highest = highest.clamp_min(math.log(a))
    plan = (exponent - highest).exp()
    row = plan.sum(-1, keepdim=True)
    return plan * (a / row.clamp_min(1)), (row >= 1).to(kernel.dtype)


def _solved(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve positive definite systems (..., N, N) for right sides (..., N) by elimination."""
    n = right.shape[-1]
    rows = [torch.cat([matrix[..., i, :], right[..., i, None]], dim=-1) for i in range(n)]  # (..., N + 1) each
    for i in range(n):
        rows[i] = rows[i] / rows[i][..., i, None]
        rows = [row if j == i else row - row[..., i, None] * rows[i] for j, row in enumerate(rows)]
    return torch.stack([row[..., n] for row in rows], dim=-1)
