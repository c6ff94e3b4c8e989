"""Matching scores from similarities, by the fused kernel on CUDA or by `solve`."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

import torch
from torch import Tensor

from fedotp.ot._graph import graph_score, is_graph
from fedotp.ot._solve import MASS, MAX_ITER, REG, SOLVER, Rule, Solver, default_tol, marginals, solve

_FUSED_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_FUSED_MAX_PROMPTS = 8
_FUSED_MAX_PATCHES = 2048
_CPU_PART = 2**24  # bytes of similarities scored at once: larger temporaries are returned to the system after use
_BATCHED: ContextVar[bool] = ContextVar("batched_gradients", default=False)


@contextmanager
def batched_gradients() -> Iterator[None]:
    """Allow gradients of `score` in several directions at once within the block, also on CUDA.

    The kernel computes the plan, and `torch.vmap` differentiates the score as plain arithmetic.
    """
    token = _BATCHED.set(True)
    try:
        yield
    finally:
        _BATCHED.reset(token)


def score(
    similarity: Tensor,
    *,
    rule: Rule = "unbalanced",
    reg: float = REG,
    mass: float | None = None,
    shares: Tensor | None = None,
    solver: Solver = SOLVER,
    counted: Tensor | None = None,
    fused: bool | None = None,
) -> Tensor:
    """Compute the matching score <T, S> of every problem, with T the solution of the transport problem of cost 1 - S.

    It is |b|_1 - d instead of Eq. 10's 1 - d, which gives the same softmax over classes. Its gradient with respect to S
    is T: the plan is constant. For two-dimensional grids of problems (images x classes) any memory order is accepted;
    that of `fedotp.matching.similarity` needs no copy. Other arguments are those of `solve`, with its
    defaults of `tol` and `max_iter`; a is uniform.

    Args:
        similarity: (..., V, N) cosine similarities of V patches and N prompts.
        fused: True requires the CUDA kernel, False disables it; by default it is used if possible: on CUDA, in up to
            float32, with the Newton solver and shares common to all problems.

    Returns:
        (...) scores, in float32 or, for float64 similarities, float64.
    """
    if is_graph() and rule != "average":
        return graph_score(similarity, reg, None if rule == "classical" else MASS if mass is None else mass, shares)
    interpreted = fused is True and os.environ.get("TRITON_INTERPRET") == "1"  # for tests without a GPU
    shared = shares is None or shares.dim() == 1
    possible = (
        (similarity.is_cuda or interpreted)
        and similarity.dtype in _FUSED_DTYPES
        and rule != "average"
        and solver == "newton"
        and shared
        and similarity.shape[-1] <= _FUSED_MAX_PROMPTS
        and similarity.shape[-2] <= _FUSED_MAX_PATCHES
        and similarity.numel() > 0
        and importlib.util.find_spec("triton") is not None
    )
    if fused and not possible:
        raise ValueError("fused=True needs CUDA with Triton, at most float32, the solver newton, and common shares")
    if possible and fused is not False:
        if not _BATCHED.get():
            return _fused_score(similarity, rule, reg, mass, shares)
        with torch.enable_grad():
            held = similarity.detach().requires_grad_()
            (plan,) = torch.autograd.grad(_fused_score(held, rule, reg, mass, shares).sum(), held)
        return (plan * similarity).sum((-2, -1))
    whole = not shared or similarity.is_cuda or solver == "batch"  # "batch" couples problems
    parts = (similarity,) if whole else _parts(similarity)
    scores = []
    for part in parts:
        plan = solve(
            1 - part.detach(), rule=rule, reg=reg, mass=mass, shares=shares, solver=solver, counted=counted
        ).plan
        scores.append((plan * part).sum((-2, -1)))
    return scores[0] if len(scores) == 1 else torch.cat(scores, dim=-1)


def _parts(similarity: Tensor) -> tuple[Tensor, ...]:
    """Split problems into parts of about `_CPU_PART` bytes along the last axis of problems, if there is one."""
    n_bytes = similarity.numel() * similarity.element_size()
    if similarity.dim() < 3 or n_bytes <= _CPU_PART:
        return (similarity,)
    return similarity.split(max(1, similarity.shape[-3] * _CPU_PART // n_bytes), dim=-3)


def _fused_score(similarity: Tensor, rule: Rule, reg: float, mass: float | None, shares: Tensor | None) -> Tensor:
    from fedotp.ot._fused import FusedScore  # Triton is installed on CUDA machines only

    share = 1.0 if rule == "classical" else MASS if mass is None else mass
    a, b = _uniform(similarity.shape[-2:], similarity.device, rule, mass)
    if shares is not None:
        b = share * shares.float()
    x = similarity.mT  # (..., N, V)
    *batch, n_prompts, n_patches = x.shape
    # (..., images, classes, N, V) may be stored as (..., classes, N, images, V), as by `matching.similarity`
    by_class = len(batch) >= 2 and not x.is_contiguous() and x.movedim(-4, -2).is_contiguous()
    inner = batch[-2] if by_class else 1
    flat, _ = FusedScore.apply(
        (x.movedim(-4, -2) if by_class else x).reshape(-1, n_prompts, inner, n_patches).contiguous(),
        a[0],
        b,
        1.0 if share > 1 - 1e-6 else share,
        reg,
        default_tol("newton", torch.float32),
        MAX_ITER["newton"],
    )
    scores: Tensor = flat.reshape(*batch[:-2], batch[-1], inner).mT if by_class else flat.reshape(batch)
    return scores


@lru_cache(maxsize=64)
def _uniform(shape: torch.Size, device: torch.device, rule: Rule, mass: float | None) -> tuple[Tensor, Tensor]:
    """Return the default marginals, cached to save several kernel launches per call."""
    return marginals(shape, torch.float32, device, None, None, rule, mass)
