"""Plans against POT, an independent library that solves one problem at a time."""

import numpy as np
import pytest
import torch
from problems import Instance, random_instance

from fedotp.ot import solve


def ours(instance: Instance, **options: object) -> np.ndarray:
    cost, a, b = (torch.from_numpy(x) for x in instance[:3])
    result = solve(cost, a, b, reg=instance.reg, tol=1e-13, **options)
    return result.plan.numpy()


def pot_unbalanced(instance: Instance) -> np.ndarray:
    import ot as pot  # takes seconds

    cost, a, b, reg = instance
    mass = min(a.sum(), b.sum())
    plan = pot.partial.entropic_partial_wasserstein(a, b, cost, reg, m=mass, numItermax=50_000, stopThr=1e-16)
    violation = np.abs(plan.sum(0) - b).max() + np.maximum(plan.sum(1) - a, 0).max()
    assert violation < 1e-11, "the oracle itself has not converged"
    return plan


def test_unbalanced_plans_equal_pot() -> None:
    """100 problems; the spread of the costs is kept to where POT's iteration converges in reasonable time."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for i in range(100):
        scale = random_instance(rng).reg
        instance = random_instance(rng, spread=1.0, mass=1.0 if i % 20 == 0 else None)
        spread = min(2.0, rng.uniform(1, 12) * scale)
        instance = instance._replace(cost=instance.cost * spread, reg=scale)
        worst = max(worst, np.abs(ours(instance) - pot_unbalanced(instance)).max())
    assert worst < 1e-8


def test_classical_plans_equal_pot() -> None:
    import ot as pot

    rng = np.random.default_rng(0)
    for _ in range(40):
        instance = random_instance(rng, spread=1.0, mass=1.0)
        instance = instance._replace(cost=instance.cost * min(2.0, 8 * instance.reg))
        cost, a, b, reg = instance
        expected = pot.sinkhorn(a, b, cost, reg, numItermax=100_000, stopThr=1e-14)
        np.testing.assert_allclose(ours(instance, rule="classical"), expected, atol=1e-10)


@pytest.mark.parametrize("solver", ["scaling", "log"])
def test_the_other_solvers_equal_pot(solver: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(15):
        instance = random_instance(rng, spread=1.0)
        instance = instance._replace(cost=instance.cost * min(2.0, 5 * instance.reg))
        plan = ours(instance, solver=solver, max_iter=50_000)
        np.testing.assert_allclose(plan, pot_unbalanced(instance), atol=1e-9)


def test_hard_problems_satisfy_the_optimality_conditions() -> None:
    """Where fixed-point iterations need millions of steps: the plan is optimal by its KKT conditions.

    log T + C / reg = g_i + f_j with g <= 0, and g_i = 0 where row i is not full, proves optimality.
    """
    rng = np.random.default_rng(2)
    for _ in range(150):
        cost, a, b, reg = instance = random_instance(rng)
        plan = ours(instance)
        np.testing.assert_allclose(plan.sum(0), b, rtol=1e-12)
        assert (plan.sum(1) <= a * (1 + 1e-7) + 1e-12).all()
        with np.errstate(divide="ignore"):
            dual = np.where(plan > 1e-250, np.log(plan) + cost / reg, np.nan)  # (V, N): g_i + f_j
        slack = plan.sum(1) < a * (1 - 1e-6)
        for j in range(len(b)):  # open rows have g = 0, so f_j can be read off any of them
            open_rows = dual[slack, j]
            open_rows = open_rows[~np.isnan(open_rows)]
            if len(open_rows):
                assert np.ptp(open_rows) < 1e-6
                assert np.nanmax(dual[:, j]) <= open_rows.max() + 1e-5
        if len(b) > 1:  # full rows scale both columns alike: f_j - f_0 is the same in every row
            difference = dual[:, 1:] - dual[:, :1]
            known = ~np.isnan(difference)
            for j in range(difference.shape[1]):
                if known[:, j].any():
                    assert np.ptp(difference[known[:, j], j]) < 1e-6
