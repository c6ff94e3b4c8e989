"""Numbers of plans: hand-made cases, scipy, and POT."""

import math
from pathlib import Path

import numpy as np
import pytest
import scipy
import torch
from hypothesis import given
from hypothesis import strategies as st
from report_made import make_run

import ot
from fedotp.clip import CLIP, TINY, ImageFeatures
from fedotp.federation.testing import Predictor
from fedotp.methods import FedOTP, Kind, Task
from fedotp.report import plan_statistics
from fedotp.report._client import ClientImages
from fedotp.report._plans import measure_plans, plan_entropy, plan_overlap, unassigned_share
from fedotp.runs.directory import RunDirectory

PLAN = torch.tensor([[0.5, 0.0], [0.0, 0.25], [0.0, 0.25], [0.0, 0.0]])  # 4 patches, 2 prompts


def test_a_plan_made_by_hand() -> None:
    np.testing.assert_allclose(plan_entropy(PLAN), [0, math.log(2) / math.log(4)])  # one patch, two of four
    assert float(unassigned_share(PLAN)) == 0.25
    assert float(plan_overlap(PLAN, 1)) == 0
    uniform = torch.full((4, 2), 0.1)
    np.testing.assert_allclose(plan_entropy(uniform), [1, 1])
    assert float(unassigned_share(uniform)) == 0
    np.testing.assert_allclose(plan_overlap(uniform, 1), 1)


def test_a_row_counts_as_left_out_below_a_tenth_of_the_uniform_share() -> None:
    rows = torch.tensor([1.0, 1.0, 1.0, 0.1])  # mean 0.775: a tenth is 0.0775
    assert float(unassigned_share(rows[:, None])) == 0
    rows[3] = 0.07
    assert float(unassigned_share(rows[:, None])) == 0.25


def test_overlap_is_a_mean_over_pairs() -> None:
    plan = torch.tensor([[0.2, 0.0, 0.2], [0.0, 0.2, 0.0]])  # two global prompts, one local
    np.testing.assert_allclose(plan_overlap(plan, 2), (1 + 0) / 2)


@given(st.integers(2, 30), st.integers(1, 3), st.integers(0, 10**6))
def test_entropy_is_scipys(n_patches: int, n_prompts: int, seed: int) -> None:
    plan = np.random.default_rng(seed).random((5, n_patches, n_prompts))
    expected = scipy.stats.entropy(plan, axis=1) / math.log(n_patches)  # it normalises by itself
    np.testing.assert_allclose(plan_entropy(torch.from_numpy(plan)), expected, rtol=1e-9)


def random_client(n: int, n_patches: int, n_prompts: int) -> ClientImages:
    """Double precision, three classes."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    image = ImageFeatures(draw(1, n, 8), draw(1, n, n_patches, 8))
    labels = torch.arange(n) % 3
    classes = torch.nn.functional.normalize(draw(1, n_prompts, 3, 8), dim=-1)
    task = Task(CLIP.random(TINY), ("a", "b", "c"))
    predictor = Predictor(FedOTP(reg=0.2, mass=0.6), task, {}, classes, (Kind.GLOBAL, Kind.LOCAL))
    return ClientImages("a", np.arange(n), image, labels, predictor)


def test_statistics_are_those_of_pots_plans() -> None:
    client = random_client(40, 9, 2)
    found = measure_plans([client], (0.3, 0.6, 1.0))
    tokens = client.image.tokens[0] / client.image.tokens[0].norm(dim=-1, keepdim=True)
    classes = client.predictor.classes[0]
    cosines = torch.einsum("bve,nke->bkvn", tokens, classes).numpy()
    for g, mass in enumerate(found.masses):
        plans = np.zeros_like(cosines)
        for index in np.ndindex(*cosines.shape[:2]):
            a, b = np.full(9, 1 / 9), np.full(2, mass / 2)
            plans[index] = ot.partial.entropic_partial_wasserstein(
                a, b, 1 - cosines[index], reg=0.2, m=mass, numItermax=100_000, stopThr=1e-13
            )
        own = plans[np.arange(40), client.labels.numpy()]
        entropy = scipy.stats.entropy(own, axis=1).mean(0) / math.log(9)
        np.testing.assert_allclose([row[g] for row in found.entropy], entropy, atol=1e-7)
        columns = own / own.sum(1, keepdims=True)
        np.testing.assert_allclose(found.overlap[g], np.minimum(*np.moveaxis(columns, 2, 0)).sum(1).mean(), atol=1e-7)
        np.testing.assert_allclose(found.unassigned[g], (own.sum(2) < 0.1 * mass / 9).mean())
        predicted = (plans * cosines).sum((2, 3)).argmax(1)
        assert found.accuracy[g] == (predicted == client.labels.numpy()).mean()
    averaged = cosines.mean((2, 3)).argmax(1)
    assert found.accuracy_uniform == (averaged == client.labels.numpy()).mean()
    assert found.accuracy_trained == found.accuracy[1]
    assert 0 < found.changed_uniform < 1


def test_a_run_measured(done: RunDirectory, squares: Path, tmp_path: Path) -> None:
    found = plan_statistics(done, (0.5, 1.0))
    lines = done.predictions()
    assert (found.n_clients, found.n_images) == (2, len(lines.row))
    assert found.accuracy_trained == found.accuracy[0] == pytest.approx(done.summary["final"]["accuracy"])
    assert found.mass_trained == 0.5
    assert found.unassigned[1] == 0  # at mass 1 every patch gives all it has
    assert len(found.plot("a run").axes) == 3
    assert plan_statistics(done.path, (0.5,), ["client-1"]).n_clients == 1
    average = plan_statistics(make_run(squares, tmp_path / "average", name="fedotp", rule="average"), (0.5,))
    assert average.mass_trained is None
    assert average.accuracy_trained == average.accuracy_uniform
    assert average.changed_uniform == 0
    classical = plan_statistics(make_run(squares, tmp_path / "classical", name="fedotp", rule="classical"), (0.5, 1.0))
    assert classical.mass_trained == 1
    assert classical.accuracy_trained == classical.accuracy[1]  # the classical problem is that at mass 1
