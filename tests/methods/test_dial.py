"""The dial: FedOTP between its global and its local prompts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedotp.clip import CLIP, ImageFeatures
from fedotp.errors import FedotpError
from fedotp.federation.testing import Predictor
from fedotp.methods import METHODS, Batch, Dial, FedOTP, Parameters, PromptSettings, Task

C, B, V, K, E = 2, 3, 6, 4, 16
RULES = ("unbalanced", "classical", "average")


@pytest.fixture(scope="module")
def task(clip: CLIP) -> Task:
    return Task(clip, ("cat", "egyptian mau", "car", "dog"), PromptSettings(n_ctx=4, std=0.3))


@pytest.fixture
def image() -> ImageFeatures:
    return ImageFeatures(torch.randn(C, B, E).double(), torch.randn(C, B, V, E).double())


def params_of(method: FedOTP, task: Task) -> Parameters:
    start = method.untrained(task)
    return {name: value + 0.3 * torch.randn(C, *value.shape[1:]) for name, value in start.items()}


def scores(method: FedOTP, task: Task, params: Parameters, image: ImageFeatures) -> Tensor:
    return Predictor.of(method, task, params, C).scores(image)


@pytest.mark.parametrize(
    ("rule", "solver"),
    [("unbalanced", "newton"), ("unbalanced", "scaling"), ("classical", "newton"), ("average", "log")],
)
def test_at_its_ends_there_is_one_kind_of_prompts_only(
    task: Task, image: ImageFeatures, rule: str, solver: str
) -> None:
    method = FedOTP(n_shared=2, rule=rule, solver=solver, mass=0.6)
    params = params_of(method, task)
    global_only, local_only = replace(method, n_private=0), replace(method, n_shared=0)
    expected = scores(global_only, task, {"shared": params["shared"]}, image)
    torch.testing.assert_close(scores(method.adjusted(dial=0.0), task, params, image), expected)
    expected = scores(local_only, task, {"private": params["private"]}, image)
    torch.testing.assert_close(scores(method.adjusted(dial=1.0), task, params, image), expected)


@pytest.mark.parametrize(("n_shared", "n_private"), [(1, 1), (3, 1)])
@pytest.mark.parametrize("rule", RULES)
def test_the_papers_masses_are_one_of_its_positions(
    task: Task, image: ImageFeatures, rule: str, n_shared: int, n_private: int
) -> None:
    method = FedOTP(n_shared=n_shared, n_private=n_private, rule=rule)
    params = params_of(method, task)
    same = method.adjusted(dial=n_private / (n_shared + n_private))
    torch.testing.assert_close(scores(same, task, params, image), scores(method, task, params, image))
    other = scores(method.adjusted(dial=0.9), task, params, image)
    assert (other - scores(method, task, params, image)).abs().max() > 1e-3


def pot_scores(predictor: Predictor, image: ImageFeatures, c: int, b: int, dial: float, mass: float) -> np.ndarray:
    """(K,) with one global and one local prompt, each problem by POT."""
    import ot as pot

    patches = image.tokens[c, b] / image.tokens[c, b].norm(dim=-1, keepdim=True)
    found = []
    for k in range(K):
        S = (patches @ predictor.classes[c, :, k].T).numpy()  # (V, 2)
        masses = mass * np.array([1 - dial, dial])
        plan = pot.partial.entropic_partial_wasserstein(
            np.full(V, 1 / V), masses, 1 - S, reg=0.1, m=mass, numItermax=100_000, stopThr=1e-13
        )
        found.append((plan * S).sum())
    return np.array(found)


@pytest.mark.parametrize("dial", [0.1, 0.35, 0.9])
def test_it_divides_the_mass(task: Task, image: ImageFeatures, dial: float) -> None:
    method = FedOTP(mass=0.7, dial=dial)
    predictor = Predictor.of(method, task, params_of(method, task), C)
    found = predictor.scores(image)
    for c, b in np.ndindex(C, B):
        np.testing.assert_allclose(found[c, b], pot_scores(predictor, image, c, b, dial, 0.7), atol=1e-7)
    labels = torch.zeros(C, B, dtype=torch.long)
    plan = predictor.plan(predictor.similarity(image.tokens, labels), image)
    expected = torch.tensor([0.7 * (1 - dial), 0.7 * dial]).double().expand(C, B, 2)
    torch.testing.assert_close(plan.sum(-2), expected)


def test_by_confidence_each_end_counts_as_it_is_certain(task: Task, image: ImageFeatures) -> None:
    """Every image restated alone: POT at both ends, SciPy's entropies, POT at the dial they give."""
    from scipy.stats import entropy

    method = FedOTP(mass=0.7, dial="confidence")
    predictor = Predictor.of(method, task, params_of(method, task), C)
    found = predictor.scores(image)
    plan = predictor.plan(predictor.similarity(image.tokens, torch.zeros(C, B, dtype=torch.long)), image)
    scale, dials = float(task.logit_scale.exp()), []
    for c, b in np.ndindex(C, B):
        certain = []
        for end in (1e-9, 1 - 1e-9):  # POT takes no column of none
            logits = scale * pot_scores(predictor, image, c, b, end, 0.7)
            weights = np.exp(logits - logits.max())
            certain.append(1 - entropy(weights / weights.sum()) / math.log(K))
        dials.append(certain[1] / sum(certain))
        np.testing.assert_allclose(found[c, b], pot_scores(predictor, image, c, b, dials[-1], 0.7), atol=1e-6)
        assert float(plan[c, b, :, 1].sum()) == pytest.approx(0.7 * dials[-1], abs=1e-6)
    assert max(dials) - min(dials) > 0.02


@pytest.mark.parametrize("dial", [0.0, 0.3, 1.0, "confidence"])
@pytest.mark.parametrize("rule", RULES)
def test_it_trains(task: Task, image: ImageFeatures, rule: str, dial: Dial) -> None:
    method = FedOTP(rule=rule, dial=dial)
    params = {name: value.requires_grad_() for name, value in params_of(method, task).items()}
    loss = method.loss(task, params, params, Batch(image, torch.randint(K, (C, B))))
    gradients = dict(zip(params, torch.autograd.grad(loss.sum(), list(params.values())), strict=True))
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    assert (gradients["shared"].abs().max() > 0) == (dial != 1.0)
    assert (gradients["private"].abs().max() > 0) == (dial != 0.0)


def test_a_dial_needs_both_kinds_of_prompts() -> None:
    for numbers in ({"n_shared": 0}, {"n_private": 0}):
        with pytest.raises(FedotpError, match=r"^method.dial = 0.5: must be none unless both"):
            FedOTP(dial=0.5, **numbers)


def test_a_method_without_a_dial_says_so(task: Task) -> None:
    promptfl = METHODS["promptfl"]()
    with pytest.raises(FedotpError, match=r"^PromptFL has no option dial: it does not weight"):
        Predictor.of(promptfl, task, promptfl.untrained(task)).with_dial(0.5)
    changed = Predictor.of(FedOTP(), task, FedOTP().untrained(task)).with_dial("confidence")
    assert changed.method == FedOTP(dial="confidence")


def test_theta_is_promptfolios_dial() -> None:
    method = METHODS["promptfolio"]()
    assert (method.adjustable["dial"], method.adjusted(dial=0.7)) == (("theta", 0.4), replace(method, theta=0.7))
    for wrong in ("confidence", 2):
        with pytest.raises(FedotpError, match=r"^method.theta = .*: must be a number from 0 to 1"):
            method.adjusted(dial=wrong)
