"""The solver that stops as the authors' code does, against the same thing written out problem by problem."""

import numpy as np
import pytest
import torch

from fedotp.clip import ImageFeatures
from fedotp.matching import Matching
from fedotp.ot import score, solve


def written_out(cost: np.ndarray, mass: float, reg: float, most: int = 100) -> tuple[list[np.ndarray], int]:
    """Plans of a list of problems (P, V, N) that all stop together, and after how many iterations."""
    n_patches, n_prompts = cost.shape[1:]
    kernels = [np.exp(-each / reg) for each in cost]
    us = [np.ones(n_patches) for _ in kernels]
    vs = [np.ones(n_prompts) for _ in kernels]
    n_iterations = 0
    while n_iterations < most:
        n_iterations += 1
        changes = []
        for p, kernel in enumerate(kernels):
            us[p] = np.minimum((1 / n_patches) / (kernel @ vs[p]), 1)
            new = (mass / n_prompts) / (kernel.T @ us[p])
            changes += [abs(one - other) for one, other in zip(new, vs[p], strict=True)]
            vs[p] = new
        if sum(changes) / len(changes) < 1e-3:
            break
    return [np.diag(u) @ kernel @ np.diag(v) for u, kernel, v in zip(us, kernels, vs, strict=True)], n_iterations


def costs(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("mass", "reg"), [(0.8, 0.1), (0.5, 0.05), (0.8, 0.02), (1.0, 0.1)])
def test_all_problems_of_a_batch_stop_together(mass: float, reg: float) -> None:
    cost = costs(3, 4, 5, 12, 2)  # 3 clients, 4 images, 5 classes
    cost[1] *= 0.2
    cost[2, 0] *= 2
    found = solve(cost, mass=mass, reg=reg, solver="batch")
    for client in range(3):
        plans, iterations = written_out(cost[client].flatten(0, 1).numpy(), mass, reg)
        assert (found.iterations[client] == iterations).all()
        torch.testing.assert_close(found.plan[client].flatten(0, 1), torch.from_numpy(np.stack(plans)))
    assert len(found.iterations.unique()) > 1 or mass == 1 or reg == 0.02  # there nothing stops in time


def test_an_image_depends_on_its_batch_mates_and_not_on_other_clients() -> None:
    cost = costs(2, 6, 3, 10, 2)
    cost[:, 1:] *= 0.1
    whole = solve(cost, solver="batch").plan
    assert torch.equal(solve(cost[:1], solver="batch").plan, whole[:1])
    alone = solve(cost[:1, :1], solver="batch").plan
    assert not torch.equal(alone, whole[:1, :1])
    assert torch.equal(solve(cost[:1, :1], solver="scaling").plan, solve(cost[:1], solver="scaling").plan[:, :1])


def test_padding_does_not_count() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens, classes = torch.randn(1, 6, 9, 8, generator=generator), torch.randn(1, 2, 4, 8, generator=generator)
    tokens[:, 4:] *= torch.linspace(-3, 3, 8)  # the padding is of another kind
    matching = Matching(solver="batch", reg=0.02)
    counted = torch.tensor([[True] * 4 + [False] * 2])
    padded = matching(ImageFeatures(tokens.mean(2), tokens), classes, None, counted)
    short = matching(ImageFeatures(tokens[:, :4].mean(2), tokens[:, :4]), classes)
    torch.testing.assert_close(padded[:, :4], short, rtol=0, atol=1e-6)


def test_where_all_mass_is_asked_for_a_hundred_iterations_are_far_too_few() -> None:
    cost = costs(1, 8, 5, 49, 2, seed=3)
    right = solve(cost, mass=1.0).plan
    cut, long = (solve(cost, mass=1.0, solver="batch", tol=1e-12, max_iter=n).plan for n in (100, 10_000))
    assert float((long - right).abs().max()) < 1e-6 < 1e-5 < float((cut - right).abs().max())


def test_scores_are_those_of_its_plans_however_many_problems_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedotp.ot._score._CPU_PART", 100)  # other solvers go through the problems in parts
    similarity = costs(2, 3, 4, 7, 2)
    plan = solve(1 - similarity, solver="batch").plan
    torch.testing.assert_close(score(similarity, solver="batch"), (plan * similarity).sum((-2, -1)))
