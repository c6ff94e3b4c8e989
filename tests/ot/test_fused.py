"""The fused kernel against the torch path in float64: on CUDA, or interpreted on the CPU (small, because slow)."""

from pathlib import Path

import pytest
import torch

from fedotp.ot import score, solve
from own_process import python

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # lanes of padding take log 0, and are masked

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SHAPES = (
    [(49, 1), (196, 2), (49, 2), (257, 2), (64, 3), (400, 6), (5, 2), (16, 2), (32, 4)]
    if CUDA
    else [(17, 1), (20, 2), (24, 3)]
)
REGS = [1.0, 0.1, 0.05, 0.01, 0.005] if CUDA else [0.1, 0.01]
MASSES = [0.05, 0.8, 1.0] if CUDA else [0.8, 1.0]
PROBLEMS = 200 if CUDA else 3


def similarities(n_patches: int, n_prompts: int, hard: bool) -> torch.Tensor:
    if hard:
        return 1 - 2 * torch.rand(PROBLEMS, n_patches, n_prompts, device=DEVICE)
    shared = 0.05 * torch.randn(PROBLEMS, n_patches, 1, device=DEVICE)
    return 0.2 + shared + 0.02 * torch.randn(PROBLEMS, n_patches, n_prompts, device=DEVICE)


@pytest.mark.parametrize(("n_patches", "n_prompts"), SHAPES)
@pytest.mark.parametrize("reg", REGS)
@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("hard", [False, True])
def test_scores_and_gradients(n_patches: int, n_prompts: int, reg: float, mass: float, hard: bool) -> None:
    sim = similarities(n_patches, n_prompts, hard).requires_grad_()
    scores = score(sim, reg=reg, mass=mass, fused=True)
    (gradient,) = torch.autograd.grad(scores.sum(), sim)
    exact = solve(1 - sim.detach().double(), reg=reg, mass=mass)
    torch.testing.assert_close(scores.double(), mass - exact.value, rtol=0, atol=1e-5)
    torch.testing.assert_close(gradient.double(), exact.plan, rtol=0, atol=5e-3 / n_patches)


@pytest.mark.parametrize("reg", [0.1, 0.01])
def test_the_classical_rule(reg: float) -> None:
    sim = similarities(30, 3, hard=True)
    classical = score(sim, rule="classical", reg=reg, fused=True)
    exact = solve(1 - sim.double(), rule="classical", reg=reg)
    torch.testing.assert_close(classical.double(), 1 - exact.value, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("n_prompts", "left"), [(2, 1), (2, 0), (3, 2)])
@pytest.mark.parametrize("reg", [0.1, 0.01])
@pytest.mark.parametrize("mass", [0.7, 1.0])
def test_a_prompt_that_takes_nothing_is_as_if_left_out(n_prompts: int, left: int, reg: float, mass: float) -> None:
    sim = similarities(30, n_prompts, hard=True).requires_grad_()
    kept = torch.arange(n_prompts, device=DEVICE) != left
    shares = kept / kept.sum()
    scores = score(sim, shares=shares, mass=mass, reg=reg, fused=True)
    (gradient,) = torch.autograd.grad(scores.sum(), sim)
    exact = solve(1 - sim.detach()[..., kept].double(), mass=mass, reg=reg)
    torch.testing.assert_close(scores.double(), mass - exact.value, rtol=0, atol=1e-5)
    assert (gradient[..., left] == 0).all()
    torch.testing.assert_close(gradient[..., kept].double(), exact.plan, rtol=0, atol=5e-3 / 30)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_it_is(dtype: torch.dtype) -> None:
    sim = similarities(40, 2, hard=False).to(dtype).requires_grad_()
    scores = score(sim, fused=True)
    (gradient,) = torch.autograd.grad(scores.sum(), sim)
    assert gradient.dtype == dtype
    same = score(sim.detach().float(), fused=True)
    assert torch.equal(scores, same)


def test_memory_order_of_the_similarity_tensor() -> None:
    """Images x classes stored class-first, as `matching.similarity` leaves them, equal the copied order."""
    stored = torch.rand(2, 2, 2, 2, 16, device=DEVICE)  # (C, K, N, B, V)
    sim = stored.permute(0, 3, 1, 4, 2).requires_grad_()  # (C, B, K, V, N)
    copy = sim.detach().contiguous().requires_grad_()
    scores, expected = score(sim, fused=True), score(copy, fused=True)
    assert scores.shape == (2, 2, 2)
    assert torch.equal(scores, expected)
    weight = torch.randn_like(expected)
    first, second = (torch.autograd.grad((s * weight).sum(), x)[0] for s, x in ((scores, sim), (expected, copy)))
    assert torch.equal(first, second)


@pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
def test_it_is_used_by_default_and_float64_is_not_degraded() -> None:
    sim = similarities(49, 2, hard=False)
    assert torch.equal(score(sim), score(sim, fused=True))
    assert score(sim.double()).dtype == torch.float64
    torch.testing.assert_close(score(sim.double()), 0.8 - solve(1 - sim.double()).value)


@pytest.mark.processes
def test_all_lanes_of_a_warp_round_alike() -> None:
    """Lanes that round differently may take different branches, and the warp would hang (seen with 16 patches)."""

    def counts(narrowest: int) -> list[int]:
        program = Path(__file__).with_name("compile_fused.py")
        done = python("-W", "ignore", program, narrowest, TRITON_INTERPRET=None)
        return [int(line.split()[-1]) for line in done.stdout.splitlines()]

    assert counts(narrowest=64) == [0] * 6
    assert max(counts(narrowest=1)) > 0  # what it guards against
