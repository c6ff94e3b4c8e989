"""Scores from similarities in one GPU kernel (Triton); the plan stays in registers.

The algorithm is that of `_newton`, one problem per program. If reg is large enough that exp(sim / reg) fits float32
(LINEAR), the exponentials are computed once, before the loop. The system of a step is solved in closed form for two
prompts, and by N steps of conjugate gradients, exact in N dimensions, for more. To save registers, the similarities are
read again at the end (from cache).
"""

import math
import os
from statistics import NormalDist
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedotp.ot._newton import OVERSHOOT, RIDGE, SHORTEN
from fedotp.ot._problem import FILLED_FROM_DEVIATION

# exp(±2 / reg) fits float32 above this, and cosine similarities differ by at most 2.
_LINEAR_FROM_REG = 0.04
_OVERSHOOT = tl.constexpr(OVERSHOOT)
_RIDGE = tl.constexpr(RIDGE)
_SHORTEN_MIN, _SHORTEN_MAX = tl.constexpr(SHORTEN[0]), tl.constexpr(SHORTEN[1])
_EPS4 = tl.constexpr(4 * torch.finfo(torch.float32).eps)
_FILLED_FROM = tl.constexpr(FILLED_FROM_DEVIATION)
_TINY = tl.constexpr(1e-37)
_LOG2_E = tl.constexpr(math.log2(math.e))
_NARROWEST = 64  # minimum patches of a tile
_INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")  # on the CPU, for tests, without assembly


@triton.jit
def _reciprocal(x):
    if _INTERPRETED:
        return 1.0 / x
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _exp2(x):
    if _INTERPRETED:
        return tl.exp2(x)
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def _tile(problem, n_inner, n_prompts, n_patches, N: tl.constexpr, V: tl.constexpr):
    """Return offsets and mask of the (N, V) tile of problem (outer, inner) in (outer, N, inner, V)."""
    n = tl.arange(0, N)[:, None]
    v = tl.arange(0, V)[None, :]
    first = (problem // n_inner).to(tl.int64) * n_prompts * n_inner + problem % n_inner
    return (first + n * n_inner) * n_patches + v, (n < n_prompts) & (v < n_patches)


@triton.jit
def _load(
    sim_ptr, a_ptr, b_ptr, problem, n_inner, n_prompts, n_patches, inv_reg,
    N: tl.constexpr, V: tl.constexpr, LINEAR: tl.constexpr,
):  # fmt: skip
    """Load the kernel (N, V), exp(sim / reg) if LINEAR, else its log2, with maximum 1 or 0; a; b (N,)."""
    offset, inside = _tile(problem, n_inner, n_prompts, n_patches, N, V)
    sim = tl.load(sim_ptr + offset, mask=inside, other=0.0).to(tl.float32)
    kernel = tl.where(inside, sim * (inv_reg * _LOG2_E), -float("inf"))
    n = tl.arange(0, N)
    kernel -= tl.where(n < n_prompts, tl.max(kernel, axis=1), 0.0)[:, None]
    if LINEAR:
        kernel = _exp2(kernel)
    return kernel, tl.load(a_ptr), tl.load(b_ptr + n, mask=n < n_prompts, other=0.0)


@triton.jit
def _start(
    kernel, a, b, quantile, n_prompts, n_patches,
    N: tl.constexpr, V: tl.constexpr, LINEAR: tl.constexpr, EQUAL: tl.constexpr,
):  # fmt: skip
    """Compute `_problem.start` of one tile. The spread of LINEAR kernels is too small for `_problem._filled`."""
    real = tl.arange(0, N) < n_prompts
    f = tl.log(b) - tl.log(tl.sum(kernel if LINEAR else _exp2(kernel), axis=1))
    if (not LINEAR) and (not EQUAL):
        inside = real[:, None] & (tl.arange(0, V) < n_patches)[None, :]
        exponent = tl.where(inside, kernel, 0.0) / _LOG2_E
        mean = tl.sum(exponent, axis=1) / n_patches
        deviation = tl.sqrt(tl.maximum(tl.sum(exponent * exponent, axis=1) / n_patches - mean * mean, 0.0))
        filled = tl.log(a * b / tl.sum(b, axis=0)) - mean - quantile * deviation
        f = tl.where(deviation > _FILLED_FROM, tl.maximum(f, filled), f)
    return tl.where(real, f, 0.0)


@triton.jit
def _plan(kernel, f, a, LINEAR: tl.constexpr, EQUAL: tl.constexpr):
    """Compute `_problem.plan_at` of one tile: plan (N, V), and 1.0 for full rows (V,)."""
    if LINEAR:
        plan = kernel * tl.exp(f)[:, None]
        scale = a * _reciprocal(tl.maximum(tl.sum(plan, axis=0), _TINY))
        full = tl.where(scale <= 1.0, 1.0, 0.0)
        if EQUAL:
            full = tl.full(full.shape, 1.0, tl.float32)
        else:
            scale = tl.minimum(scale, 1.0)
    else:
        logits = kernel + (f * _LOG2_E)[:, None]
        highest = tl.maximum(tl.max(logits, axis=0), -1e30)
        if not EQUAL:
            highest = tl.maximum(highest, tl.log2(a))
        plan = _exp2(logits - highest[None, :])
        row = tl.sum(plan, axis=0)
        full = tl.where(row >= 1.0, 1.0, 0.0)
        scale = a * _reciprocal(tl.maximum(row, 1.0))
    return plan * scale[None, :], full


@triton.jit
def _direction(plan, column, full, inv_a, gradient, ridge, N: tl.constexpr, CG: tl.constexpr):
    """Solve (diag(column + ridge) - sum over full rows of T_i T_i' / a_i) d = gradient."""
    if N == 2:
        # Full rows transport all their mass, so the matrix is [[p + m, -m], [-m, q + m]].
        is_first = tl.arange(0, 2) == 0
        first = tl.sum(tl.where(is_first[:, None], plan, 0.0), axis=0)
        second = tl.sum(tl.where(is_first[:, None], 0.0, plan), axis=0)
        m = tl.sum(first * second * full, axis=0) * inv_a
        own = tl.sum(plan * (1.0 - full)[None, :], axis=1) + ridge  # (p, q)
        p = tl.sum(tl.where(is_first, own, 0.0), axis=0)
        q = tl.sum(tl.where(is_first, 0.0, own), axis=0)
        adjugate = tl.where(is_first, q, p) * gradient + m * tl.sum(gradient, axis=0)
        direction = adjugate / tl.maximum(p * q + m * (p + q), _TINY)
    else:
        direction = tl.zeros((N,), dtype=tl.float32)
        rest = gradient
        search = gradient
        square = tl.sum(rest * rest, axis=0)
        for _ in tl.static_range(CG):
            along = tl.sum(plan * search[:, None], axis=0) * (full * inv_a)
            image = (column + ridge) * search - tl.sum(plan * along[None, :], axis=1)
            step = square / tl.maximum(tl.sum(search * image, axis=0), _TINY)
            direction += step * search
            rest -= step * image
            smaller = tl.sum(rest * rest, axis=0)
            search = rest + smaller / tl.maximum(square, _TINY) * search
            square = smaller
    return direction


@triton.jit
def _forward(
    sim_ptr, a_ptr, b_ptr, score_ptr, f_ptr, steps_ptr,
    n_inner, n_prompts, n_patches, inv_reg, quantile, reach, tol, max_iter,
    N: tl.constexpr, V: tl.constexpr, CG: tl.constexpr,
    LINEAR: tl.constexpr, EQUAL: tl.constexpr,
):  # fmt: skip
    problem = tl.program_id(0)
    kernel, a, b = _load(sim_ptr, a_ptr, b_ptr, problem, n_inner, n_prompts, n_patches, inv_reg, N, V, LINEAR)
    inv_a = tl.where(a > 0, 1.0 / a, 0.0)
    n = tl.arange(0, N)
    real = n < n_prompts
    goal = tol * tl.sum(b, axis=0)
    f = _start(kernel, a, b, quantile, n_prompts, n_patches, N, V, LINEAR, EQUAL)
    direction = tl.zeros((N,), dtype=tl.float32)
    slope = 0.0
    length = 0.0
    steps = 0
    left = max_iter
    while left > 0:
        trial = f + length * direction
        plan, full = _plan(kernel, trial, a, LINEAR, EQUAL)
        column = tl.sum(plan, axis=1)
        gradient = b - column
        turned = tl.sum(gradient * direction, axis=0)
        residual = tl.sum(tl.abs(gradient), axis=0)
        steps += 1
        left -= 1
        if residual <= goal:
            f = trial
            left = 0
        elif turned >= slope * -_OVERSHOOT:
            f = trial
            ridge = _RIDGE * residual + _EPS4 * b
            direction = _direction(plan, column, full, inv_a, gradient, ridge, N, CG)
            longest = tl.max(tl.abs(direction), axis=0)
            direction *= tl.minimum(1.0, reach / tl.maximum(longest, _TINY))
            slope = tl.sum(gradient * direction, axis=0)
            length = 1.0
        else:
            length *= tl.minimum(tl.maximum(slope / (slope - turned), _SHORTEN_MIN), _SHORTEN_MAX)
    plan, _ = _plan(kernel, f, a, LINEAR, EQUAL)
    exact = tl.where(b > 0, b / tl.sum(plan, axis=1), 0.0)  # like Algorithm 1, end with exact columns
    offset, inside = _tile(problem, n_inner, n_prompts, n_patches, N, V)
    sim = tl.load(sim_ptr + offset, mask=inside, other=0.0).to(tl.float32)  # cheaper than keeping it
    tl.store(score_ptr + problem, tl.sum(tl.sum(plan * sim, axis=1) * exact, axis=0))
    tl.store(steps_ptr + problem, steps)
    tl.store(f_ptr + problem.to(tl.int64) * n_prompts + n, f, mask=real)


@triton.jit
def _backward(
    sim_ptr, a_ptr, b_ptr, f_ptr, grad_score_ptr, grad_sim_ptr, n_inner, n_prompts, n_patches, inv_reg,
    N: tl.constexpr, V: tl.constexpr, LINEAR: tl.constexpr, EQUAL: tl.constexpr,
):  # fmt: skip
    problem = tl.program_id(0)
    kernel, a, b = _load(sim_ptr, a_ptr, b_ptr, problem, n_inner, n_prompts, n_patches, inv_reg, N, V, LINEAR)
    n = tl.arange(0, N)
    real = n < n_prompts
    f = tl.load(f_ptr + problem.to(tl.int64) * n_prompts + n, mask=real, other=0.0)
    plan, _ = _plan(kernel, f, a, LINEAR, EQUAL)
    exact = tl.where(b > 0, b / tl.sum(plan, axis=1), 0.0)
    grad = plan * (exact * tl.load(grad_score_ptr + problem).to(tl.float32))[:, None]
    offset, inside = _tile(problem, n_inner, n_prompts, n_patches, N, V)
    tl.store(grad_sim_ptr + offset, grad.to(grad_sim_ptr.dtype.element_ty), mask=inside)


def _options(sim: Tensor, reg: float, equal: bool) -> dict[str, Any]:
    """Return compile-time options for similarities (outer, N, inner, V).

    A warp has up to 1,024 entries of the tile; few registers per thread allow many warps (measured). Tiles are at least
    `_NARROWEST` wide, so that a lane sums several patches before lanes exchange sums. With one patch per lane, the
    compiler fuses a lane's product into the sum with its neighbour's; lanes then differ in the last bit and take
    different branches of the loop, which deadlocks the warp.
    """
    N, V = triton.next_power_of_2(sim.shape[1]), max(triton.next_power_of_2(sim.shape[3]), _NARROWEST)
    return {
        "N": N,
        "V": V,
        "LINEAR": reg >= _LINEAR_FROM_REG,
        "EQUAL": equal,
        "num_warps": min(max(N * V // 1024, 1), 8),
        "maxnreg": 64 if N * V <= 512 else 80,
    }


class FusedScore(torch.autograd.Function):
    """Function sum(T * similarity) (outer * inner,) of cosine similarities (outer, N, inner, V) on CUDA.

    There is one problem for each outer and inner index. The marginals a (), of every patch, and b (N,) are float32 and
    shared by all problems; `share` is |b|_1 / |a|_1, and with 1 rows must equal a. The gradient is T, recomputed.
    """

    @staticmethod
    def forward(
        ctx: Any, sim: Tensor, a: Tensor, b: Tensor, share: float, reg: float, tol: float, max_iter: int
    ) -> tuple[Tensor, Tensor]:
        """Compute scores float32 and iterations int32, both (outer * inner,)."""
        outer, n_prompts, inner, n_patches = sim.shape
        score = torch.empty(outer * inner, device=sim.device)
        steps = torch.empty(outer * inner, device=sim.device, dtype=torch.int32)
        f = torch.empty((outer * inner, n_prompts), device=sim.device)
        ctx.save_for_backward(sim, a, b, f)
        ctx.reg, ctx.options = reg, _options(sim, reg, equal=share >= 1)
        ctx.mark_non_differentiable(steps)
        quantile = NormalDist().inv_cdf(min(max(1 - share, 1e-3), 1 - 1e-9))
        reach = 5 + 2 / reg  # maximum distance of the dual solution from the start, for cosines
        _forward[(outer * inner,)](
            sim, a, b, score, f, steps, inner, n_prompts, n_patches, 1 / reg, quantile, reach, tol, max_iter,
            CG=n_prompts, **ctx.options,
        )  # fmt: skip
        return score, steps

    @staticmethod
    def backward(ctx: Any, grad_score: Tensor, _steps: Tensor) -> tuple[Tensor | None, ...]:
        """Return the plan, with exact columns, times the incoming gradient."""
        sim, a, b, f = ctx.saved_tensors
        outer, n_prompts, inner, n_patches = sim.shape
        grad = torch.empty_like(sim)
        _backward[(outer * inner,)](
            sim, a, b, f, grad_score.contiguous(), grad, inner, n_prompts, n_patches, 1 / ctx.reg,
            **ctx.options,
        )  # fmt: skip
        return grad, None, None, None, None, None, None
