"""Properties every plan has, and what `solve` accepts and refuses."""

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import random_instance

from fedotp.errors import FedotpError
from fedotp.ot import Solver, score, solve

SOLVERS = get_args(Solver)
seeds = st.integers(0, 2**32 - 1)


def batch(
    seed: int, size: int = 5, n_patches: int = 30, n_prompts: int = 3, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    return torch.rand(
        size, n_patches, n_prompts, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


@given(seeds, st.sampled_from(SOLVERS))
def test_marginals(seed: int, solver: str) -> None:
    cost, a, b, reg = random_instance(np.random.default_rng(seed), spread=0.5)
    a, b = torch.from_numpy(a), torch.from_numpy(b)
    result = solve(torch.from_numpy(cost), a, b, reg=max(reg, 0.02), solver=solver)
    assert (result.plan >= 0).all()
    torch.testing.assert_close(result.plan.sum(0), b, rtol=1e-9, atol=0)
    excess = (result.plan.sum(1) - a).clamp_min(0).sum() / b.sum()
    torch.testing.assert_close(result.residual, excess + (result.plan.sum(0) - b).abs().sum() / b.sum())
    if solver not in ("scaling", "batch"):  # its stopping rule looks at v, not at the constraints
        assert result.residual < 1e-8


@given(seeds)
def test_permuting_patches_and_prompts_permutes_the_plan(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost, a, b, reg = random_instance(rng)
    rows, columns = rng.permutation(len(a)), rng.permutation(len(b))
    plan = solve(*map(torch.from_numpy, (cost, a, b)), reg=reg).plan
    shuffled = solve(*map(torch.from_numpy, (cost[rows][:, columns], a[rows], b[columns])), reg=reg).plan
    torch.testing.assert_close(shuffled, plan[rows][:, columns], rtol=0, atol=1e-9)


@given(seeds, st.floats(-1, 1))
def test_a_constant_added_to_the_costs_changes_nothing(seed: int, constant: float) -> None:
    cost = batch(seed)
    torch.testing.assert_close(solve(cost + constant).plan, solve(cost).plan, rtol=0, atol=1e-9)


@settings(max_examples=40)
@given(seeds, st.sampled_from(SOLVERS), st.sampled_from([0.3, 0.1, 0.05, 0.02]))
def test_a_plan_does_not_depend_on_its_batch_mates(seed: int, solver: str, reg: float) -> None:
    """Bit for bit, though the neighbours take other numbers of iterations."""
    cost = batch(seed, size=4, dtype=torch.float32)
    cost[1:] *= torch.tensor([0.01, 2.0, 0.3])[:, None, None]
    together = solve(cost, reg=reg, solver=solver)
    alone = solve(cost[:1], reg=reg, solver=solver)
    assert torch.equal(together.plan[:1], alone.plan)
    assert torch.equal(together.iterations[:1], alone.iterations)


@pytest.mark.parametrize("rule", ["unbalanced", "classical"])
@pytest.mark.parametrize("reg", [1.0, 0.1])
def test_three_solvers_one_result(rule: str, reg: float) -> None:
    cost = batch(0, size=20)
    plans = [solve(cost, rule=rule, reg=reg, solver=s, tol=1e-12, max_iter=50_000).plan for s in SOLVERS]
    torch.testing.assert_close(plans[1], plans[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(plans[2], plans[0], rtol=0, atol=1e-9)
    if rule == "unbalanced":  # all the mass there is: the classical problem
        whole = solve(cost, mass=1.0, reg=reg, tol=1e-12).plan
        torch.testing.assert_close(whole, solve(cost, rule="classical", reg=reg, tol=1e-12).plan)


def test_one_prompt_fills_its_best_patches() -> None:
    """With N = 1 the plan is min(v exp(-C / reg), a) for the one v that gives the mass: found by bisection."""
    cost, a, mass, reg = batch(3, size=1, n_prompts=1)[0], torch.full((30,), 1 / 30, dtype=torch.float64), 0.6, 0.02
    kernel = torch.exp(-cost[:, 0] / reg)
    low, high = -100.0, 200.0
    for _ in range(200):
        middle = (low + high) / 2
        filled = torch.minimum(kernel * np.exp(middle), a).sum()
        low, high = (middle, high) if filled < mass else (low, middle)
    expected = torch.minimum(kernel * np.exp(low), a)
    plan = solve(cost, mass=mass, reg=reg, tol=1e-14).plan[:, 0]
    torch.testing.assert_close(plan, expected, rtol=1e-9, atol=1e-12)


def test_patches_without_mass_are_left_out() -> None:
    cost, a = batch(6)[0], torch.rand(30).double()
    a[::3] = 0
    a /= a.sum()
    plan = solve(cost, a, mass=0.7).plan
    assert (plan[::3] == 0).all()
    kept = torch.arange(30) % 3 != 0
    torch.testing.assert_close(plan[kept], solve(cost[kept], a[kept], mass=0.7).plan, rtol=0, atol=1e-9)


def test_algorithm_1_step_by_step() -> None:
    """`solver="scaling"` restated as the paper prints it, with its initial value and stopping rule."""
    cost, reg, gamma = batch(7, size=1)[0], 0.1, 0.8
    alpha, beta = torch.full((30,), 1 / 30, dtype=torch.float64), torch.full((3,), gamma / 3, dtype=torch.float64)
    Q, v, steps = torch.exp(-cost / reg), torch.ones(3).double(), 0
    while True:
        steps += 1
        u = torch.minimum(1 / ((Q / alpha[:, None]) @ v), torch.ones(30).double())
        new = 1 / ((Q / beta).T @ u)
        delta, v = (new - v).abs().mean(), new
        if delta < 1e-3 or steps == 100:
            break
    result = solve(cost, reg=reg, mass=gamma, solver="scaling")
    assert result.iterations == steps
    # The paper pairs the last v with the u it came from; we pair it with the u it leads to, then fit v once more.
    u = torch.minimum(1 / ((Q / alpha[:, None]) @ v), torch.ones(30).double())
    v = 1 / ((Q / beta).T @ u)
    torch.testing.assert_close(result.plan, u[:, None] * Q * v)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("reg", [1.0, 0.05, 0.01, 0.005])
def test_low_precision_input_stays_finite_and_right(dtype: torch.dtype, solver: str, reg: float) -> None:
    cost = (2 * batch(8, size=8, n_patches=49, n_prompts=2)).to(dtype)
    result = solve(cost, reg=reg, solver=solver, max_iter=300)
    assert result.plan.dtype == torch.float32
    assert result.plan.isfinite().all()
    assert result.value.isfinite().all()
    if solver == "newton":
        exact = solve(cost.double(), reg=reg).plan
        torch.testing.assert_close(result.plan.double(), exact, rtol=0, atol=5e-4 / 49)


@pytest.mark.parametrize("reg", [0.1, 0.01, 0.005])
@pytest.mark.parametrize("mass", [0.05, 0.8, 0.99, 1.0])
@pytest.mark.parametrize("n_prompts", [1, 2, 6])
def test_newton_converges_in_float32(reg: float, mass: float, n_prompts: int) -> None:
    cost = 2 * batch(9, size=16, n_patches=196, n_prompts=n_prompts, dtype=torch.float32)
    result = solve(cost, reg=reg, mass=mass)
    assert result.residual.max() < 1e-4
    assert result.iterations.max() < 200


@pytest.mark.parametrize("rule", ["unbalanced", "classical"])
def test_the_gradient_of_the_objective_is_the_true_one(rule: str) -> None:
    """Against finite differences of the minimum itself."""
    cost = batch(11, size=2, n_patches=7).requires_grad_()
    assert torch.autograd.gradcheck(lambda c: solve(c, rule=rule, tol=1e-13).objective, cost, atol=1e-6)


def test_the_objective_is_minimal() -> None:
    """No feasible plan does better: mixtures with the average plan cost more."""
    cost = batch(12)
    best, other = solve(cost), solve(cost, rule="average").plan
    for share in (0.01, 0.3, 1.0):
        plan = (1 - share) * best.plan + share * other
        worse = (plan * cost).sum((-2, -1)) - 0.1 * torch.special.entr(plan).sum((-2, -1))
        assert (worse > best.objective).all()


def test_score_is_mass_minus_value_and_differentiates_to_the_plan() -> None:
    similarity = batch(13).requires_grad_()
    cost = 1 - similarity.detach()
    result = solve(cost.requires_grad_())
    assert not result.plan.requires_grad
    torch.testing.assert_close(torch.autograd.grad(result.value.sum(), cost)[0], result.plan)
    scores = score(similarity)
    torch.testing.assert_close(scores, 0.8 - result.value.detach())
    (gradient,) = torch.autograd.grad(scores.sum(), similarity)
    torch.testing.assert_close(gradient, result.plan)


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
@pytest.mark.parametrize("given", [None, torch.tensor([0.3, 0.7]), torch.rand(7, 2) * 0.4 + 0.05])
def test_scores_in_parts_are_the_same(
    shape: tuple[int, ...], given: torch.Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = given if given is None or given.dim() == 1 else given.expand(*shape, 2)
    similarity = torch.rand(*shape, 9, 2, dtype=torch.float64).requires_grad_()

    def scored() -> tuple[torch.Tensor, torch.Tensor]:
        scores = score(similarity, shares=shares)
        (gradient,) = torch.autograd.grad((scores * torch.arange(7)).sum(), similarity)
        return scores.detach(), gradient

    whole = scored()
    monkeypatch.setattr("fedotp.ot._score._CPU_PART", similarity.numel() * 8 // 3)
    for at_once, in_parts in zip(whole, scored(), strict=True):
        assert torch.equal(at_once, in_parts)


def test_any_leading_shape_and_memory_order() -> None:
    cost = torch.rand(2, 3, 4, 9, 2)
    flat = solve(cost.reshape(24, 9, 2)).plan.reshape(cost.shape)
    torch.testing.assert_close(solve(cost).plan, flat)
    torch.testing.assert_close(solve(cost.mT.contiguous().mT).plan, flat)
    assert solve(cost[0, 0, 0]).value.shape == ()
    assert solve(cost[:0]).plan.shape == (0, 3, 4, 9, 2)


def test_many_problems_are_solved_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    cost, a = batch(15, size=40), torch.rand(40, 30).double()
    a /= a.sum(-1, keepdim=True)
    whole = solve(cost, a)
    monkeypatch.setattr("fedotp.ot._solve._CPU_CHUNK", 7 * 30 * 3 * 8)
    parts = solve(cost, a)
    assert torch.equal(parts.plan, whole.plan)
    assert torch.equal(parts.iterations, whole.iterations)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rule", ["unbalanced", "classical"])
@pytest.mark.parametrize("reg", [0.2, 0.02])
def test_a_prompt_that_takes_nothing_is_as_if_left_out(solver: str, rule: str, reg: float) -> None:
    """Each problem leaves another one out, the first none, the last all but one."""
    cost, b = batch(8, size=5), torch.rand(5, 3).double() + 0.1
    out = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]]).bool()
    b[out] = 0
    b *= (1.0 if rule == "classical" else 0.7) / b.sum(-1, keepdim=True)
    options = {"rule": rule, "reg": reg, "solver": solver}
    found = solve(cost, b=b, **options)
    assert (found.plan.mT[out] == 0).all()
    for each, plan in enumerate(found.plan):
        kept = solve(cost[each, :, ~out[each]], b=b[each, ~out[each]], **options)
        torch.testing.assert_close(plan[:, ~out[each]], kept.plan, rtol=0, atol=1e-12)
        assert found.iterations[each] == kept.iterations
    shared = solve(cost[1:2], b=b[1], **options)  # marginals of all problems
    torch.testing.assert_close(shared.plan, found.plan[1:2], rtol=0, atol=1e-12)
    assert found.objective.isfinite().all()
    assert found.residual.isfinite().all()


def test_shares_are_of_the_mass() -> None:
    cost, shares = batch(9), torch.rand(5, 3).double()
    shares /= shares.sum(-1, keepdim=True)
    torch.testing.assert_close(solve(cost, mass=0.6, shares=shares).plan, solve(cost, b=0.6 * shares).plan)
    torch.testing.assert_close(solve(cost, shares=shares[0]).plan, solve(cost, b=0.8 * shares[0]).plan)
    classical = solve(cost, rule="classical", shares=shares)
    torch.testing.assert_close(classical.plan, solve(cost, rule="classical", b=shares).plan)
    torch.testing.assert_close(
        solve(cost, rule="average", mass=0.6, shares=shares).plan, (0.6 * shares / 30)[:, None].expand(-1, 30, -1)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mass": 1.2}, "mass = 1.2"),
        ({"rule": "balanced"}, "must be unbalanced, classical or average"),
        ({"rule": "classical", "mass": 0.8}, "mass must not be set with b"),
        ({"a": torch.ones(3)}, r"a has shape \(3,\): must be \(30,\)"),
        ({"b": torch.tensor([0.5, -0.1, 0.5])}, "a and b must not be negative"),
        ({"b": torch.zeros(3)}, "b must not be all 0"),
        ({"b": torch.full((3,), 0.1), "shares": torch.full((3,), 0.1)}, "shares must not be set with b"),
        ({"b": torch.full((3,), 0.1), "rule": "classical"}, "must equal"),
    ],
)
def test_wrong_input_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(FedotpError, match=message):
        solve(batch(16), **options)
    with pytest.raises(FedotpError, match="must be"):
        solve(torch.zeros(5, 0, 2))


def test_fused_is_refused_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="fused=True needs CUDA"):
        score(torch.zeros(2, 4, 2), fused=True)
