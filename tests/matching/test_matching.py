"""Scores against the paper's equations written out one image, class and patch at a time."""

import pytest
import torch

from fedotp.clip import ImageFeatures
from fedotp.matching import Matching, Rule, cross_entropy, pooled_score, similarity

C, B, V, N, K, E = 2, 3, 9, 2, 4, 16


@pytest.fixture
def image() -> ImageFeatures:
    return ImageFeatures(pooled=torch.randn(C, B, E).double(), tokens=torch.randn(C, B, V, E).double())


@pytest.fixture
def classes() -> torch.Tensor:
    return torch.randn(C, N, K, E).double()


def cosine(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x @ y) / (x.norm() * y.norm()))


def each() -> list[tuple[int, int, int]]:
    return [(c, b, k) for c in range(C) for b in range(B) for k in range(K)]


def patch_cosines(image: ImageFeatures, classes: torch.Tensor, c: int, b: int, k: int) -> torch.Tensor:
    return torch.tensor(
        [[cosine(image.tokens[c, b, v], classes[c, n, k]) for n in range(N)] for v in range(V)], dtype=torch.float64
    )


def test_pooled_is_equation_1(image: ImageFeatures, classes: torch.Tensor) -> None:
    scores = Matching(rule="pooled")(image, classes[:, :1])
    for c, b, k in each():
        assert scores[c, b, k].item() == pytest.approx(cosine(image.pooled[c, b], classes[c, 0, k]))
    both = pooled_score(image.pooled, classes)
    parts = [pooled_score(image.pooled, classes[:, n : n + 1]) for n in range(N)]
    torch.testing.assert_close(both, (parts[0] + parts[1]) / 2)


def test_similarity_is_the_cosine_of_patch_and_prompt_and_average_their_mean(
    image: ImageFeatures, classes: torch.Tensor
) -> None:
    sim = similarity(image.tokens, classes)
    scores = Matching(rule="average")(image, classes)
    assert sim.shape == (C, B, K, V, N)
    for c, b, k in each():
        cosines = patch_cosines(image, classes, c, b, k)
        torch.testing.assert_close(sim[c, b, k], cosines)
        assert scores[c, b, k].item() == pytest.approx(cosines.mean().item())


@pytest.mark.parametrize("mass", [0.5, 0.8, None])
def test_unbalanced_is_one_minus_the_distance_and_classical_is_sinkhorn(
    image: ImageFeatures, classes: torch.Tensor, mass: float | None
) -> None:
    """Eq. 10's 1 - d is our score + 1 - mass, with d from POT's plan on C = 1 - cosine."""
    import ot as pot

    scores = (Matching(rule="unbalanced", mass=mass) if mass else Matching(rule="classical"))(image, classes)
    for c, b, k in each():
        cost = 1 - patch_cosines(image, classes, c, b, k).numpy()
        if mass is None:
            plan = pot.sinkhorn([1 / V] * V, [1 / N] * N, cost, 0.1, numItermax=20_000, stopThr=1e-14)
        else:
            plan = pot.partial.entropic_partial_wasserstein(
                [1 / V] * V, [mass / N] * N, cost, 0.1, m=mass, numItermax=20_000, stopThr=1e-15
            )
        assert scores[c, b, k].item() + 1 - (mass or 1) == pytest.approx(1 - (plan * cost).sum(), abs=1e-8)


@pytest.mark.parametrize("rule", ["pooled", "average", "classical", "unbalanced"])
def test_gradients_reach_the_class_features(image: ImageFeatures, classes: torch.Tensor, rule: str) -> None:
    """Through normalisation and similarity exactly; the plan is held fixed (restated with its value inserted)."""
    classes.requires_grad_()
    weight = torch.randn(C, B, K).double()
    (gradient,) = torch.autograd.grad((Matching(rule=rule)(image, classes) * weight).sum(), classes)
    if rule in ("classical", "unbalanced"):
        from fedotp.ot import solve

        sim = similarity(image.tokens, classes)
        plan = solve(1 - sim.detach(), rule=rule).plan
        (expected,) = torch.autograd.grad(((plan * sim).sum((-2, -1)) * weight).sum(), classes)
        torch.testing.assert_close(gradient, expected)
    else:
        moved = classes.detach() + 1e-6 * gradient
        change = ((Matching(rule=rule)(image, moved) - Matching(rule=rule)(image, classes)) * weight).sum()
        assert change.item() == pytest.approx(1e-6 * gradient.square().sum().item(), rel=1e-4)


def test_cross_entropy_is_per_client_and_skips_padding() -> None:
    scores, scale = torch.randn(3, 4, K), torch.tensor(1.0)
    labels = torch.tensor([[0, 1, 2, 3], [3, 2, -1, -1], [-1, -1, -1, -1]])
    chosen = (scores * torch.e).log_softmax(-1)
    expected = [-(chosen[0, range(4), range(4)].mean()), -(chosen[1, 0, 3] + chosen[1, 1, 2]) / 2, 0.0]
    torch.testing.assert_close(cross_entropy(scores, labels, scale), torch.tensor(expected))


@pytest.mark.parametrize("rule", ["average", "classical", "unbalanced"])
def test_the_score_is_the_similarity_under_the_plan(image: ImageFeatures, classes: torch.Tensor, rule: Rule) -> None:
    matching = Matching(rule=rule, mass=0.7)
    given = similarity(image.tokens, classes)
    plan = matching.plan(given)
    assert plan.sum((-2, -1)) == pytest.approx(torch.full(plan.shape[:3], 0.7 if rule == "unbalanced" else 1.0))
    torch.testing.assert_close((plan * given).sum((-2, -1)), matching(image, classes), atol=1e-6, rtol=0)
