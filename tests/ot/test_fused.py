"""The CUDA kernel against the torch path in float64."""

import pytest
import torch

from fedotp.ot import score, solve

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def similarities(n_problems: int, n_patches: int, n_prompts: int, hard: bool) -> torch.Tensor:
    if hard:
        return 1 - 2 * torch.rand(n_problems, n_patches, n_prompts, device="cuda")
    shared = 0.05 * torch.randn(n_problems, n_patches, 1, device="cuda")
    return 0.2 + shared + 0.02 * torch.randn(n_problems, n_patches, n_prompts, device="cuda")


@pytest.mark.parametrize(("n_patches", "n_prompts"), [(49, 1), (196, 2), (49, 2), (257, 2), (64, 3), (400, 6)])
@pytest.mark.parametrize("reg", [1.0, 0.1, 0.05, 0.01, 0.005])
@pytest.mark.parametrize("mass", [0.05, 0.8, 1.0])
@pytest.mark.parametrize("hard", [False, True])
def test_scores_and_gradients(n_patches: int, n_prompts: int, reg: float, mass: float, hard: bool) -> None:
    sim = similarities(200, n_patches, n_prompts, hard).requires_grad_()
    scores = score(sim, reg=reg, mass=mass, fused=True)
    (gradient,) = torch.autograd.grad(scores.sum(), sim)
    exact = solve(1 - sim.detach().double(), reg=reg, mass=mass)
    torch.testing.assert_close(scores.double(), mass - exact.value, rtol=0, atol=1e-5)
    torch.testing.assert_close(gradient.double(), exact.plan, rtol=0, atol=5e-3 / n_patches)


@pytest.mark.parametrize("reg", [0.1, 0.01])
def test_given_marginals(reg: float) -> None:
    sim = similarities(50, 60, 3, hard=True)
    a, b = torch.rand(60, device="cuda"), torch.rand(3, device="cuda")
    a[::7] = 0
    a, b = a / a.sum(), 0.7 * b / b.sum()
    exact = solve(1 - sim.double(), a.double(), b.double(), reg=reg)
    scores = score(sim, a, b, reg=reg, fused=True)
    torch.testing.assert_close(scores.double(), b.double().sum() - exact.value, rtol=0, atol=1e-5)


def test_classical() -> None:
    sim = similarities(50, 60, 3, hard=True)
    exact = solve(1 - sim.double(), kind="classical")
    scores = score(sim, kind="classical", fused=True)
    torch.testing.assert_close(scores.double(), 1 - exact.value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_it_is(dtype: torch.dtype) -> None:
    sim = similarities(50, 196, 2, hard=False).to(dtype).requires_grad_()
    scores = score(sim, fused=True)
    (gradient,) = torch.autograd.grad(scores.sum(), sim)
    assert gradient.dtype == dtype
    same = score(sim.detach().float(), fused=True)
    assert torch.equal(scores, same)


def test_memory_order_of_the_similarity_tensor() -> None:
    """Images x classes stored class-first, as `matching.similarity` leaves them, equal the copied order."""
    stored = torch.rand(3, 5, 2, 4, 49, device="cuda")  # (C, K, N, B, V)
    sim = stored.permute(0, 3, 1, 4, 2).requires_grad_()  # (C, B, K, V, N)
    copy = sim.detach().contiguous().requires_grad_()
    scores, expected = score(sim, fused=True), score(copy, fused=True)
    assert scores.shape == (3, 4, 5)
    assert torch.equal(scores, expected)
    weight = torch.randn_like(expected)
    first, second = (torch.autograd.grad((s * weight).sum(), x)[0] for s, x in ((scores, sim), (expected, copy)))
    assert torch.equal(first, second)


def test_it_is_used_by_default_and_float64_is_not_degraded() -> None:
    sim = similarities(10, 49, 2, hard=False)
    assert torch.equal(score(sim), score(sim, fused=True))
    assert score(sim.double()).dtype == torch.float64
    torch.testing.assert_close(score(sim.double()), 0.8 - solve(1 - sim.double()).value)
