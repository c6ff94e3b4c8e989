"""Three rounds of FedCLIP, FedTPG, FedMGP and pFedMoAP, which learn networks, or several prompts, client by client in
float64: as in their papers, and as in their code, of which a description was restated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from golden import (
    ROUNDS,
    SEED,
    TAU,
    TOLERANCE,
    Restated,
    average,
    captions,
    cross_entropy,
    exact_task,
    generator,
    golden_settings,
    pooled_scores,
    run_engine,
    text_features,
    unit,
)
from torch import Tensor, nn
from torch.nn.functional import multi_head_attention_forward
from toy_federation import CLASSES, TRAIN, kept_rows, make_data

from fedotp.federation import OptimizerSettings
from fedotp.methods import Parameters, Task
from fedotp.methods._fedclip import FedCLIP
from fedotp.methods._fedmgp import FedMGP
from fedotp.methods._fedtpg import FedTPG
from fedotp.methods._pfedmoap import PFedMoAP

# FedCLIP ---------------------------------------------------------------------------------------------------

NAMES = ("first_weight", "first_bias", "second_weight", "second_bias")


def drawn_by_torch(width: int) -> list[Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        layers = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
    return [value.detach().double() for value in layers.parameters()]


@dataclass
class RestatedFedCLIP(Restated):
    adam: OptimizerSettings | None = None
    code: bool = False

    def optimizer(self, params: list[Tensor]) -> torch.optim.Optimizer:
        if self.adam is None:
            return super().optimizer(params)
        betas = (0.9, self.adam.beta2)
        return torch.optim.Adam(params, self.adam.rate, betas, self.adam.epsilon, self.adam.weight_decay)

    def objective(
        self, params: list[Tensor], received: list[Tensor], pooled: Tensor, tokens: Tensor, labels: Tensor
    ) -> Tensor:
        W_1, b_1, W_2, b_2 = params
        f = pooled if self.code else unit(pooled)
        attention = torch.softmax(F.linear(torch.tanh(F.linear(f, W_1, b_1)), W_2, b_2), dim=-1)
        if not self.code:
            return cross_entropy(pooled_scores(attention * f, tokens, [captions(self.task)]), labels)
        images, texts = unit(attention * f), unit(captions(self.task))[labels]  # pairs: of an image and its caption
        n, total = len(labels), 0.0
        for i in range(n):
            of_image = torch.stack([images[i] @ texts[j] / TAU for j in range(n)])
            of_caption = torch.stack([images[j] @ texts[i] / TAU for j in range(n)])
            total = total - torch.log_softmax(of_image, 0)[i] / 2 - torch.log_softmax(of_caption, 0)[i] / 2
        return total / n


AUTHORS = OptimizerSettings("adam", lr=0.01, weight_decay=0.2, beta2=0.98, epsilon=1e-6)


@pytest.mark.parametrize("variant", ["paper", "code"])
@pytest.mark.parametrize("adam", [None, AUTHORS], ids=["sgd", "adam"])
def test_three_rounds_of_fedclip(adam: OptimizerSettings | None, variant: str) -> None:
    """Every client counts alike in the mean, though they have 1 to 10 images."""
    task, data, settings = exact_task(), make_data(), golden_settings(0.6)
    settings = replace(settings, optimizer=adam or replace(settings.optimizer, name="sgd"))
    federation, reports = run_engine(FedCLIP(variant=variant), task, data, settings)
    restated = RestatedFedCLIP(task, data, pooled_scores, list, 0.6, adam=adam, code=variant == "code")
    shared = start = drawn_by_torch(16)
    for round_ in range(ROUNDS):
        uploads = []
        for place, i in enumerate(restated.sampled(round_)):
            params = [value.clone() for value in shared]
            loss = restated.train(round_, i, params, shared)
            assert reports[round_].loss[place] == pytest.approx(loss, abs=TOLERANCE)
            uploads.append(params)
        shared = [sum(values) / len(uploads) for values in zip(*uploads, strict=True)]
    assert set(federation.server.params) == set(NAMES)
    for name, value, before in zip(NAMES, shared, start, strict=True):
        torch.testing.assert_close(federation.server.params[name], value, rtol=0, atol=TOLERANCE)
        assert (value - before).abs().max() > 1e-3  # it moved
    assert federation.private_names == frozenset()
    assert np.isfinite(federation.predict().loss).all()


# FedTPG ---------------------------------------------------------------------------------------------------

D, E = 32, 16  # widths of the toy's text tower and features


class Generator(nn.Module):
    """As the paper has it: cross-attention without residual, then x + FF(x) with GEGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.soft = nn.Parameter(torch.empty(2, D))
        self.query_norm, self.context_norm, self.ff_norm = nn.LayerNorm(D), nn.LayerNorm(E), nn.LayerNorm(D)
        self.attention = nn.MultiheadAttention(D, 4, kdim=E, vdim=E, batch_first=True)
        self.ff_in, self.ff_out = nn.Linear(D, 8 * D), nn.Linear(4 * D, D)

    def forward(self, names: Tensor) -> Tensor:
        query, context = self.query_norm(self.soft)[None], self.context_norm(names)[None]
        x, _ = self.attention(query, context, context)
        values, gates = self.ff_in(self.ff_norm(x)).chunk(2, dim=-1)
        return (x + self.ff_out(values * nn.functional.gelu(gates)))[0]

    @classmethod
    def of(cls, params: Parameters) -> "Generator":
        """With the method's numbers."""
        module = cls().double()
        for name, value in module.named().items():
            value.copy_(params[name])
        return module

    def named(self) -> Parameters:
        """Its tensors under the names of the method."""
        attention, found = self.attention, {"soft": self.soft}
        for name in ("query_norm", "context_norm", "ff_norm", "ff_in", "ff_out"):
            found[name], found[f"{name}_bias"] = getattr(self, name).weight, getattr(self, name).bias
        found |= {"query": attention.q_proj_weight, "key": attention.k_proj_weight, "value": attention.v_proj_weight}
        found |= {"out": attention.out_proj.weight, "out_bias": attention.out_proj.bias}
        biases = attention.in_proj_bias.chunk(3)
        found |= {f"{name}_bias": bias for name, bias in zip(("query", "key", "value"), biases, strict=True)}
        return {name: value.detach() for name, value in found.items()}


def test_three_rounds_of_fedtpg() -> None:
    task, data, method = exact_task(), make_data(), FedTPG(n_ctx=2)
    federation, reports = run_engine(method, task, data, golden_settings(0.6))

    words = task.clip.tokenizer
    with torch.no_grad():
        names = unit(task.clip.encode_text(words(list(CLASSES), task.clip.config.text.context_length)))
    server = method.shared(task, len(TRAIN))
    start = server
    for round_ in range(ROUNDS):
        sent = []
        restated = Restated(task, data, lambda *_: torch.empty(0), list, 0.6)
        for place, i in enumerate(restated.sampled(round_)):
            own = sorted(set(data.train.labels[data.train.clients[i]].tolist()))
            module = Generator.of(server)

            def score(pooled: Tensor, _tokens: Tensor, features: list[Tensor], own: list[int] = own) -> Tensor:
                """Of absent classes the probability is 0."""
                scores = torch.full((len(pooled), len(CLASSES)), -torch.inf, dtype=torch.float64)
                scores[:, own] = unit(pooled) @ unit(features[0])[own].T
                return scores

            restated.score = score
            restated.prompts = lambda _, module=module, own=own: [module(names[own])]  # type: ignore[misc]
            loss = restated.train(round_, i, list(module.parameters()), [])
            assert reports[round_].loss[place] == pytest.approx(loss, abs=TOLERANCE)
            sent.append(module.named())
        server = {name: torch.stack([each[name] for each in sent]).mean(0) for name in server}  # all count alike
    assert federation.server.params.keys() == server.keys()
    for name, value in server.items():
        torch.testing.assert_close(federation.server.params[name], value, rtol=0, atol=TOLERANCE)
        assert not torch.equal(value, start[name]), name

    # Predictions: all names are the context, whoever asks.
    lines = federation.predict()
    with torch.no_grad():
        features = text_features(task, Generator.of(server)(names))
    pooled = data.test.features.pooled[0][lines.row].double()
    losses = -torch.log_softmax(unit(pooled) @ unit(features).T * task.logit_scale.exp(), -1)
    expected = losses[torch.arange(len(pooled)), torch.from_numpy(lines.label)]
    np.testing.assert_allclose(lines.loss, expected.detach(), rtol=0, atol=1e-9)


# FedMGP ---------------------------------------------------------------------------------------------------


def words(task: Task) -> Tensor:
    return task.clip.token_embedding.weight.detach()[task.clip.tokenizer.encode("a photo of a")]


def start(task: Task, groups: int, vectors: int) -> list[Tensor]:
    """The embeddings of the first words and noise of deviation 0.01, drawn in float32 for all four words."""
    noise = 0.01 * torch.randn(groups, 4, 32, generator=torch.Generator().manual_seed(SEED))
    return [(words(task).float() + each)[:vectors].double() for each in noise]


def cosine(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum() / one.norm() / other.norm()


@dataclass
class RestatedFedMGP(Restated):
    diversity: float = 1.0
    code: bool = False

    def objective(
        self, params: list[Tensor], received: list[Tensor], pooled: Tensor, tokens: Tensor, labels: Tensor
    ) -> Tensor:
        # In the code the words behind the vectors stay: "[v1][v2] of a name."
        rest = words(self.task)[len(params[0]) if self.code else 4 :]
        features = [text_features(self.task, torch.cat([P, rest])) for P in params]
        each = [cross_entropy(pooled_scores(pooled, tokens, [H]), labels) for H in features]
        if self.code:  # L1 distances of class features, which then are to fall
            pairs = [sum((unit(a) - unit(b)).abs().flatten()) / a.numel() for a, b in combinations(features, 2)]
        else:
            pairs = [cosine(one, other) for one, other in combinations(params, 2)]
        return sum(each) / len(each) + self.diversity * sum(pairs) / len(pairs)


def drawn(slots: list[Tensor], shared: list[Tensor], tau: float, n: int, draw: np.random.Generator) -> list[int]:
    """Slots one by one: the largest of what is left of log p + a Gumbel variable; p is even if nothing is shared."""
    weights = np.array([np.exp(max((float(cosine(P, G)) for G in shared), default=0) / tau) for P in slots])
    keys = np.log(weights / weights.sum()) + draw.gumbel(size=len(slots))
    left, found = list(range(len(slots))), []
    for _ in range(n):
        found.append(max(left, key=lambda slot: keys[slot]))
        left.remove(found[-1])
    return found


@pytest.mark.parametrize(
    ("groups", "vectors", "n", "diversity", "variant", "tau"),
    [(5, 2, 2, 1.0, "paper", 1.0), (4, 1, 3, 0.5, "paper", 0.1), (4, 1, 3, 5.0, "code", 0.1)],
)
def test_three_rounds_of_fedmgp(groups: int, vectors: int, n: int, diversity: float, variant: str, tau: float) -> None:
    """Here clients have slots: those drawn are overwritten by what the server sends, in the order of the draw."""
    task, data = exact_task(), make_data()
    method = FedMGP(groups=groups, vectors=vectors, drawn=n, diversity=diversity, variant=variant, tau=tau)
    federation, reports = run_engine(method, task, data, golden_settings(0.6))
    code = variant == "code"
    restated = RestatedFedMGP(task, data, pooled_scores, list, 0.6, diversity=diversity, code=code)
    first = start(task, groups, vectors)
    shared = first[:n]
    slots = [list(first) for _ in TRAIN]
    orders = [list(range(groups)) for _ in TRAIN]  # slots: those drawn first, the others where they stood
    for round_ in range(ROUNDS):
        clients, uploads = restated.sampled(round_), []
        for place, i in enumerate(clients):
            order = orders[i]
            for rank in range(n):
                slots[i][order[rank]] = shared[rank]
            params = [slots[i][slot].clone() for slot in order]
            loss = restated.train(round_, i, params, shared)
            assert reports[round_].loss[place] == pytest.approx(loss, abs=TOLERANCE)
            for slot, trained in zip(order, params, strict=True):
                slots[i][slot] = trained
            known = [] if code and round_ == 0 else shared  # in the code the first draw is even
            chosen = [order[at] for at in drawn(params, known, tau, n, generator("upload", round_, i))]
            uploads.append([slots[i][slot] for slot in chosen])
            came = [slot for slot in order[:n] if slot not in chosen]  # these take the places that have become free
            orders[i] = [*chosen, *(came.pop(0) if slot in chosen else slot for slot in order[n:])]
        for rank in range(n):
            ranked = [upload[rank] for upload in uploads]
            shared[rank] = sum(ranked) / len(ranked) if code else average(ranked, clients)
    torch.testing.assert_close(federation.server.params["shared"], torch.stack(shared), rtol=0, atol=TOLERANCE)
    own = torch.stack([torch.stack([slots[i][slot] for slot in orders[i][n:]]) for i in range(len(TRAIN))])
    torch.testing.assert_close(kept_rows(federation)["own"], own, rtol=0, atol=TOLERANCE)
    assert any(sorted(order[:n]) != list(range(n)) for order in orders)  # chance had a say


# pFedMoAP: attention is torch's own; its weights for queries are multiplied so that logits are ten times q . k.

WIDTH, HEADS = 16, 8  # of the toy's features, all of which the gating network sees
GATE = ("gate_in", "gate_in_bias", "gate_out", "gate_out_bias")
Scored = Callable[[Tensor, Tensor, list[Tensor]], Tensor]


def attended(query: Tensor, experts: Tensor, gate: list[Tensor]) -> Tensor:
    """T_k (w,) for a query (w,) and experts (N, w)."""
    weight, bias, out, out_bias = gate
    factor = torch.ones(3 * WIDTH, dtype=torch.float64)
    factor[:WIDTH] = 10 * math.sqrt(WIDTH / HEADS)
    found, _ = multi_head_attention_forward(
        query.view(1, 1, -1),
        experts[:, None],
        experts[:, None],
        WIDTH,
        HEADS,
        factor[:, None] * weight,
        factor * bias,
        None,
        None,
        False,
        0.0,
        out,
        out_bias,
    )
    return found.flatten()


def mixture_scores(gate: list[Tensor], experts: list[Tensor], lam: float) -> Scored:
    """Scores (B, K) with the features (K, e) of experts; plain ones without."""

    def score(pooled: Tensor, _tokens: Tensor, features: list[Tensor]) -> Tensor:
        (own,) = features
        if not experts:
            return unit(pooled) @ unit(own).T
        rows = []
        for f in unit(pooled):
            row = []
            for k in range(len(CLASSES)):
                z = torch.stack([unit(each[k]) for each in (own, *experts)])
                row.append(lam * f @ z[0] + f @ attended(f, z, gate))
            rows.append(torch.stack(row))
        return torch.stack(rows)

    return score


@pytest.mark.parametrize(("choice", "lam"), [("nearest", 0.5), ("fixed", 0.3)])
def test_three_rounds_of_pfedmoap(choice: str, lam: float) -> None:
    task, data = exact_task(), make_data()
    method = PFedMoAP(experts=2, choice=choice, lam=lam, gate_rate=2.0)  # type: ignore[arg-type]
    federation, reports = run_engine(method, task, data, golden_settings(0.8))

    initial = method.private(task)
    P_g, gates = task.contexts(1)[0], [[initial[name] for name in GATE] for _ in TRAIN]
    pool: dict[int, Tensor] = {}
    with_experts = 0
    restated = Restated(task, data, lambda *_: torch.empty(0), lambda params: params[:1], 0.8)
    restated.penalty = lambda params, _: 0 * sum(each.sum() for each in params)  # so that weight decay is felt
    restated.rates = [1.0, 2.0, 2.0, 2.0, 2.0]
    rank = federation.server.params["order"].tolist() if choice == "fixed" else []
    for round_ in range(ROUNDS):
        trained = {}
        for place, i in enumerate(restated.sampled(round_)):
            others = [j for j in sorted(pool) if j != i] if i in pool else []
            others.sort(key=lambda j: rank[j] if rank else float((pool[j] - pool[i]).norm()))
            experts = [text_features(task, pool[j]) for j in others[:2]]
            with_experts += len(experts) == 2
            params = [x.clone() for x in (P_g, *gates[i])]
            restated.score = mixture_scores(params[1:], experts, lam)
            loss = restated.train(round_, i, params, [])
            assert reports[round_].loss[place] == pytest.approx(loss, abs=TOLERANCE)
            trained[i], gates[i] = params[0], params[1:]
        P_g = average(list(trained.values()), list(trained))
        pool |= trained
    assert with_experts >= 5
    assert max((gates[i][0] - initial["gate_in"]).abs().max() for i in pool) > 0.01
    torch.testing.assert_close(federation.server.params["prompt"][0], P_g, rtol=0, atol=TOLERANCE)
    rows = kept_rows(federation)
    assert federation.server.params["sent"].nonzero().flatten().tolist() == sorted(pool)
    for i, prompt in pool.items():
        torch.testing.assert_close(federation.server.params["pool"][i, 0], prompt, rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(rows["own"][i, 0], prompt, rtol=0, atol=TOLERANCE)
    for name, expected in zip(GATE, zip(*gates, strict=True), strict=True):
        torch.testing.assert_close(rows[name], torch.stack(expected), rtol=0, atol=TOLERANCE)

    # Predictions: the client's own prompt, and the experts as they are after the last round.
    lines = federation.predict()
    for i in range(len(TRAIN)):
        mine = lines.client == i
        others = sorted((j for j in pool if j != i), key=lambda j: float((pool[j] - pool[i]).norm()))
        others = others if choice == "nearest" else sorted(others, key=lambda j: rank[j])
        experts = [text_features(task, pool[j]) for j in others[:2]] if rows["stage"][i] == 2 else []
        pooled = data.test.features.pooled[0][lines.row[mine]].double()
        scores = mixture_scores(gates[i], experts, lam)(pooled, pooled, [text_features(task, pool[i])])
        losses = -torch.log_softmax(scores * task.logit_scale.exp(), -1)
        expected = losses[torch.arange(len(pooled)), torch.from_numpy(lines.label[mine])]
        np.testing.assert_allclose(lines.loss[mine], expected.detach(), rtol=0, atol=1e-9)
