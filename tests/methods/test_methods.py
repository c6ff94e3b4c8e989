"""What each method declares: its scores restated, its parameters, what it refuses."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedotp import ot
from fedotp.clip import CLIP, ImageFeatures
from fedotp.errors import FedotpError
from fedotp.methods import METHODS, Batch, FedOTP, Memory, PromptSettings, Task, ZeroShot
from fedotp.methods._fedamp import PromptFLAmp
from fedotp.methods._fedpgp import FedPGP
from fedotp.methods._pfedprompt import PFedPrompt
from fedotp.methods._promptfl import PromptFL, PromptFLPer

C, B, V, N, K, E = 2, 3, 5, 2, 4, 16
NAMES = ("cat", "egyptian mau", "car", "dog")


@pytest.fixture(scope="module")
def task(clip: CLIP) -> Task:
    return Task(clip, NAMES, PromptSettings(n_ctx=4, std=0.3))


def make_batch(seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    pooled = torch.randn(C, B, E, generator=generator, dtype=torch.float64)
    tokens = torch.randn(C, B, V, E, generator=generator, dtype=torch.float64)
    return Batch(ImageFeatures(pooled, tokens), torch.randint(K, (C, B), generator=generator))


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return a @ b / a.norm() / b.norm()


def test_a_prompt_in_feature_space_is_added_to_the_features_of_classes(clip: CLIP) -> None:
    task, batch = Task(clip, NAMES, PromptSettings("features")), make_batch()
    captions, prompts = task.template_features()[0, 0].numpy(), np.random.default_rng(0).normal(size=(C, N, K, E))
    expected = captions / np.linalg.norm(captions, axis=-1, keepdims=True) + prompts / 4  # e = 16
    np.testing.assert_allclose(task.features(torch.tensor(prompts)).numpy(), expected, rtol=0, atol=1e-12)
    unchanged = task.features(torch.zeros(C, 1, K, E, dtype=torch.float64))
    zero_shot = ZeroShot().score(task, {}, batch, task.template_features())
    torch.testing.assert_close(PromptFL().score(task, {}, batch, unchanged), zero_shot, rtol=0, atol=1e-12)
    method, start = FedOTP(rule="average"), (torch.tensor(prompts[:, n : n + 1]).requires_grad_() for n in range(2))
    assert torch.autograd.gradcheck(
        lambda *given: method.loss(task, dict(zip(("shared", "private"), given, strict=True)), {}, batch), (*start,)
    )


# FedOTP ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_prompts", [1, 2, 3])
@pytest.mark.parametrize("rule", ["unbalanced", "classical", "average"])
def test_fedotp_matches_by_the_rule_it_names(task: Task, rule: str, n_prompts: int) -> None:
    """Image by image and class by class, the transport problem solved by the other solver."""
    batch = make_batch()
    classes = torch.randn(C, n_prompts, K, E, dtype=torch.float64)
    found = FedOTP(n_private=n_prompts - 1, rule=rule, reg=0.2, mass=0.6).score(task, {}, batch, classes)
    for c in range(C):
        for b in range(B):
            for k in range(K):
                rows = [
                    [cosine(patch, classes[c, n, k]) for n in range(n_prompts)] for patch in batch.image.tokens[c, b]
                ]
                S = torch.stack([torch.stack(row) for row in rows])  # (V, N)
                if rule == "average":
                    expected = S.mean()
                else:
                    kept = {"mass": 0.6} if rule == "unbalanced" else {}
                    plan = ot.solve(1 - S, rule=rule, reg=0.2, solver="log", tol=1e-12, **kept).plan
                    expected = (plan * S).sum()
                assert found[c, b, k] == pytest.approx(float(expected), abs=1e-9)


REFUSED: dict[str, list[tuple[str, object, str]]] = {
    "fedotp": [
        ("n_shared", -1, "must not be negative"),
        ("mass", 1.2, "must be from 1e-06 to 1"),
        ("reg", math.nan, "must be from 1e-06"),
        ("solver", "batch", "must be newton, scaling or log"),
    ],
    "promptfl-fedprox": [("mu", -1.0, "must be from 0"), ("mu", math.nan, "must be from 0")],
    "promptfl-fedamp": [("strength", 1.5, "must be from 0 to 1"), ("sigma", -1.0, "must be from 0"), ("mu", -1.0, "")],
    "promptfolio": [("theta", 1.1, "must be a number from 0 to 1"), ("theta", math.nan, "must be a number")],
    "fedpgp": [("rank", 0, "must be from 1 to 256"), ("anchor", "clip", "must be template or x")],
    "fedpha": [("rho", math.nan, "must be from 0 to 1"), ("subspace", "column", "must be null or row")],
    "pfedmoap": [
        ("experts", 0, "must be from 1 to 256 .the paper uses 9"),
        ("choice", "farthest", "must be nearest or fixed"),
    ],
    "fedmgp": [
        ("vectors", 5, 'must be from 1 to 4, the words of "a photo of a"'),
        ("drawn", 6, "must be from 1 to method.groups = 5"),
        ("variant", "mine", "must be paper or code"),
        ("tau", 0.0, "must be from 1e-06"),
    ],
    "fedtpg": [("n_ctx", 0, "must be from 1 to 1000 .the paper uses 4")],
}


def test_options_out_of_range_are_refused() -> None:
    for name, cases in REFUSED.items():
        for option, value, right in cases:
            with pytest.raises(FedotpError, match=rf"^method\.{option} = {value!r}.*{right}"):
                METHODS[name](**{option: value})
    with pytest.raises(FedotpError, match=r"^prompt\.kgcoop = -1\.0: must be from 0 to 1000000 .0: none"):
        PromptSettings(kgcoop=-1.0)


# The others ------------------------------------------------------------------------------------------------


def test_zero_shot_features_are_those_of_the_captions(clip: CLIP) -> None:
    task = Task(clip, NAMES, template="a picture of {}, a pet.")
    found = ZeroShot().class_features(task, {})
    ids = clip.tokenizer([f"a picture of {name}, a pet." for name in NAMES], 77)
    torch.testing.assert_close(found, clip.encode_text(ids)[None, None])
    assert ZeroShot().shared(task, 3) == ZeroShot().private(task) == {}
    with pytest.raises(FedotpError, match=r"must contain \{\}"):
        Task(clip, NAMES, template="a picture")


@pytest.mark.parametrize(("n_base", "expected"), [(0, 2), (1, 1), (3, 3)])
def test_fedper_shares_the_first_vectors(task: Task, n_base: int, expected: int) -> None:
    method = PromptFLPer(n_base=n_base)
    base, personal = method.shared(task, 3)["base"], method.private(task)["personal"]
    assert base.shape == (1, expected, 32)
    assert personal.shape == (1, 4 - expected, 32)
    whole = method.class_features(task, {"base": base[None], "personal": personal[None]})
    torch.testing.assert_close(whole, task.encoder(task.contexts(1)[None]))


@pytest.mark.parametrize(("n_base", "n_ctx"), [(4, 4), (9, 4), (0, 1)])
def test_fedper_needs_vectors_of_both_kinds(clip: CLIP, n_base: int, n_ctx: int) -> None:
    task = Task(clip, NAMES, PromptSettings(n_ctx=n_ctx))
    with pytest.raises(FedotpError, match=r"method.n_base = \d: must be"):
        PromptFLPer(n_base=n_base).shared(task, 3)


def test_prompts_all_clients_share_are_encoded_once_and_right(task: Task) -> None:
    one, own = task.contexts(1), torch.randn(C, 2, 4, 32, dtype=torch.float64)
    shared = one.expand(C, *one.shape)
    expected = task.encoder(torch.cat([shared, own], dim=1))
    torch.testing.assert_close(task.features(shared, own), expected)
    torch.testing.assert_close(task.features(shared), expected[:, :1])


# FedAMP ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strength", "sigma"), [(1.0, 0.0), (0.5, 0.0), (1.0, 2.0), (0.0, 1.0)])
def test_fedamp_mixes_by_the_formula(strength: float, sigma: float) -> None:
    method = PromptFLAmp(strength=strength, sigma=sigma)
    prompts = torch.randn(5, 1, 2, 3, dtype=torch.float64)
    server = {"prompts": prompts, "sent": torch.tensor([1.0, 0, 1, 1, 0])}
    known = [0, 2, 3]
    pairs = [(prompts[i] - prompts[j]).square().sum() for i in known for j in known if i != j]
    scale = sigma or torch.stack(pairs).mean()
    clients = torch.tensor([0, 1, 3])
    found = method.send(server, clients, 3)["mixture"]
    for place, i in enumerate(clients.tolist()):
        mixed, weights = torch.zeros_like(prompts[0]), 0.0
        for j in known:
            if j != i:
                xi = strength / len(known) * torch.exp(-(prompts[i] - prompts[j]).square().sum() / scale)
                mixed, weights = mixed + xi * prompts[j], weights + xi
        torch.testing.assert_close(found[place], mixed + (1 - weights) * prompts[i], rtol=0, atol=1e-12)
        alone = method.send(server, clients[place : place + 1], 1)["mixture"]
        torch.testing.assert_close(alone[0], found[place], rtol=0, atol=1e-14)


# pFedPrompt ------------------------------------------------------------------------------------------------


def restated(batch: Batch, classes: Tensor, alpha: float, beta: float) -> Tensor:
    """One image at a time, lists instead of masks."""
    memory = batch.memory
    assert memory is not None
    out = torch.zeros(C, B, K, dtype=torch.float64)
    for c in range(C):
        for b in range(B):
            f = batch.image.pooled[c, b] / batch.image.pooled[c, b].norm()
            keys = [j for j in range(memory.labels.shape[1]) if memory.labels[c, j] >= 0]
            if batch.places is not None:
                keys = [j for j in keys if j != batch.places[c, b]]
            G = [memory.spatial[c, j] / memory.spatial[c, j].norm() for j in keys]
            powers = [math.exp(beta * float(f @ g)) for g in G]
            w = [p / sum(powers) for p in powers]
            for k in range(K):
                t = classes[c, 0, k] / classes[c, 0, k].norm()
                personal = 0.0
                if keys:
                    v = sum(x * g for x, g in zip(w, G, strict=True))
                    personal = float(v / v.norm() @ t)
                out[c, b, k] = f @ t + alpha * personal
    return out


@pytest.mark.parametrize("training", [True, False])
def test_attention_over_the_clients_own_images(task: Task, training: bool) -> None:
    """Client 0 has four images, client 1 has one: alone in training, it has nothing to attend to."""
    batch = make_batch()
    memory = Memory(
        spatial=torch.randn(C, 4, E, dtype=torch.float64), labels=torch.tensor([[0, 1, 1, 3], [2, -1, -1, -1]])
    )
    places = torch.tensor([[3, 0, 2], [0, -1, -1]]) if training else None
    batch = batch._replace(memory=memory, places=places)
    classes = torch.randn(C, 1, K, E, dtype=torch.float64, requires_grad=True)
    method = PFedPrompt(alpha=0.7, beta=3.0)
    found = method.score(task, {}, batch, classes)
    expected = restated(batch, classes.detach(), 0.7, 3.0)
    real = torch.ones(C, B, dtype=torch.bool) if places is None else places >= 0
    torch.testing.assert_close(found[real].detach(), expected[real], rtol=0, atol=1e-12)
    found.sum().backward()
    assert classes.grad.isfinite().all()
    if training:
        plain = PromptFL().score(task, {}, batch, classes)
        torch.testing.assert_close(found[1, 0], plain[1, 0])  # the one-image client

    worse = memory._replace(spatial=memory.spatial.clone())
    worse.spatial[1, 1:] = 1e6  # padding
    torch.testing.assert_close(method.score(task, {}, batch._replace(memory=worse), classes), found)


# FedPGP ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("rank", [1, 3])
def test_fedpgp_changes_the_shared_prompt_by_a_low_rank(clip: CLIP, rank: int, per_class: bool) -> None:
    task = Task(clip, NAMES, PromptSettings(n_ctx=5, per_class=per_class))
    method = FedPGP(rank=rank)
    params = method.untrained(task)
    several = (1, 1, K) if per_class else (1, 1)
    assert {name: tuple(value.shape) for name, value in params.items()} == {
        "prompt": (*several, 5, 32),
        "u": (*several, 5, rank),
        "v": (*several, rank, 32),
    }
    own, sigma = (prompt.context for prompt in method.training_prompts(task, params))
    assert (torch.linalg.matrix_rank(own - sigma, rtol=1e-9) == rank).all()
    drawn = torch.cat([params["u"].flatten(), params["v"].flatten()])
    assert 0.01 < float(drawn.std()) < 0.03  # 0.02
    other = method.untrained(replace(task, seed=1))
    assert not any(torch.equal(params[name], other[name]) for name in params)
    assert not torch.equal(params["u"].flatten()[:5], params["v"].flatten()[:5])


# Learning rates --------------------------------------------------------------------------------------------


def test_the_rates_on_mini_are_the_best_of_those_recorded() -> None:
    """recipes/field/rates.csv: accuracies on two splits that no page shows."""
    recorded: dict[str, dict[str, float]] = {}
    with (Path(__file__).parents[2] / "recipes/field/rates.csv").open() as file:
        for row in csv.DictReader(file):
            title, *options = row["method"].split(", ")
            if options and row["accuracy_mean"]:
                recorded.setdefault(title, {})[", ".join(options)] = float(row["accuracy_mean"])
    methods = {method.title: method for method in METHODS.values()}
    assert len(recorded) == 15
    for title, rates in recorded.items():
        method = methods[title]
        name = "" if method.optimizer == "sgd" else f"optimizer.name={method.optimizer}, "
        assert max(rates, key=rates.__getitem__) == f"{name}optimizer.lr={method.learning_rates.mini:g}"
