"""Rounds of the engine against a straight-line restatement of Algorithm 2 in float64.

The restatement goes through the clients one by one and shares with the engine only the frozen text tower (its plain
path over all 77 positions) and the documented random draws: who is sampled, and in which order a client's images come.
"""

import copy
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor
from toy_federation import CLASSES, TRAIN, kept_rows, make_data, make_settings, make_task, simulator

from fedotp.federation import FederatedData, RoundReport, Settings, Simulator
from fedotp.methods import CoOp, FedOTP, Method, PromptFL, PromptFLAmp, PromptFLPer, PromptFLProx, Task

ROUNDS, EPOCHS, BATCH, LR, MOMENTUM, DECAY, SEED = 3, 2, 4, 0.05, 0.9, 5e-4, 11
TAU = 0.07  # of the tower

Scorer = Callable[[Tensor, Tensor, list[Tensor]], Tensor]


def generator(purpose: str, *numbers: int) -> np.random.Generator:
    """The documented draws: PCG64 seeded with the seed, CRC-32 of the purpose, and the round and client."""
    entropy = np.random.SeedSequence([SEED, zlib.crc32(purpose.encode()), *numbers])
    return np.random.Generator(np.random.PCG64(entropy))


def text_features(task: Task, context: Tensor) -> Tensor:
    """Class features (K, e) of one prompt (s, d): [SOS] p_1 ... p_s name . [EOT] and zeros up to 77."""
    clip, words = task.clip, task.clip.tokenizer
    rows, ends = [], []
    for name in CLASSES:
        tail = [*words.encode(name), *words.encode("."), words.eot]
        length = 1 + len(context) + len(tail)
        start, end = (clip.token_embedding(torch.tensor(ids)) for ids in ([words.sot], tail + [0] * (77 - length)))
        rows.append(torch.cat([start, context, end]))
        ends.append(length - 1)
    return clip.encode_embeddings(torch.stack(rows), torch.tensor(ends))


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def algorithm_1(cost: Tensor, reg: float, mass: float) -> Tensor:
    """The paper's Algorithm 1 for one cost matrix (V, N), iterated until nothing moves any more."""
    n_patches, n_prompts = cost.shape
    Q = torch.exp(-cost / reg)
    Q_a, Q_b = Q * n_patches, Q.T * n_prompts / mass
    v = torch.ones(n_prompts, dtype=torch.float64)
    for _ in range(100_000):
        u = torch.minimum(1 / (Q_a @ v), torch.ones(n_patches, dtype=torch.float64))
        before, v = v, 1 / (Q_b @ u)
        if (v - before).abs().max() <= 1e-14 * v.max():
            return u[:, None] * Q * v
    raise AssertionError("Algorithm 1 did not converge")


def transport_scores(reg: float, mass: float) -> Scorer:
    def score(_pooled: Tensor, tokens: Tensor, features: list[Tensor]) -> Tensor:
        rows = []
        for image in tokens:
            row = []
            for k in range(len(CLASSES)):
                S = unit(image) @ torch.stack([unit(H[k]) for H in features]).T  # (V, N)
                plan = algorithm_1(1 - S.detach(), reg, mass)
                distance = (plan * (1 - S)).sum()  # d_{C,k}, the plan held fixed
                row.append(1 - distance)
            rows.append(torch.stack(row))
        return torch.stack(rows)

    return score


def pooled_scores(pooled: Tensor, _tokens: Tensor, features: list[Tensor]) -> Tensor:
    (H,) = features
    return unit(pooled) @ unit(H).T


@dataclass
class Restated:
    """Algorithm 2. Each client starts with `start(received, own)`, a list of tensors that SGD changes in place."""

    task: Task
    data: FederatedData
    score: Scorer
    prompts: Callable[[list[Tensor]], list[Tensor]]  # the prompts (s, d) whose features are matched
    participation: float = 1.0
    penalty: Callable[[list[Tensor], list[Tensor]], Tensor | float] = lambda params, received: 0.0
    steps: list[float] = field(default_factory=list)

    def sampled(self, round_: int) -> list[int]:
        n = len(self.data)
        order = np.argsort(generator("sample", round_).random(n), kind="stable")
        return sorted(order[: max(1, round(self.participation * n))].tolist())

    def batches(self, round_: int, client: int) -> list[tuple[int, list[int]]]:
        """(view, rows) of every step: each epoch a new order, cut into batches, the last one smaller."""
        rows = self.data.train.clients[client]
        draw = generator("batches", round_, client)
        found = []
        for epoch in range(EPOCHS):
            order = np.argsort(draw.random(len(rows)), kind="stable").tolist()
            view = (round_ * EPOCHS + epoch) % self.data.train.features.n_views
            while order:
                found.append((view, [int(rows[place]) for place in order[:BATCH]]))
                order = order[BATCH:]
        return found

    def train(self, round_: int, client: int, params: list[Tensor], received: list[Tensor]) -> float:
        """All local steps; returns the mean objective over the images seen."""
        for param in params:
            param.requires_grad_()
        optimizer = torch.optim.SGD(params, lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
        total, seen = 0.0, 0
        for view, rows in self.batches(round_, client):
            held = self.data.train.features
            pooled, tokens = held.pooled[view][rows].double(), held.tokens[view][rows].double()
            features = [text_features(self.task, prompt) for prompt in self.prompts(params)]
            q = torch.softmax(self.score(pooled, tokens, features) / TAU, dim=-1)
            labels = self.data.train.labels[rows]
            loss = -torch.log(q[torch.arange(len(rows)), torch.from_numpy(labels)]).mean()
            loss = loss + self.penalty(params, received)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.steps.append(float(loss.detach()))
            total, seen = total + float(loss.detach()) * len(rows), seen + len(rows)
        for param in params:
            param.requires_grad_(False)
        return total / seen


def average(parts: list[Tensor], clients: list[int]) -> Tensor:
    """Eq. 4."""
    total = sum(TRAIN[i] for i in clients)
    return sum(TRAIN[i] / total * part for i, part in zip(clients, parts, strict=True))


def averaged(
    restated: Restated, shared: Tensor | None, own: list[Tensor | None]
) -> tuple[Tensor | None, list[list[float]]]:
    """Rounds of methods whose server averages `shared` and whose clients keep `own`, which is changed.

    Returns what the server ends with and the losses of the clients of each round.
    """
    losses = []
    for round_ in range(ROUNDS):
        clients = restated.sampled(round_)
        uploads, of_round = [], []
        for i in clients:
            received = [] if shared is None else [shared]
            params = [x.clone() for x in (shared, own[i]) if x is not None]
            of_round.append(restated.train(round_, i, params, received))
            if shared is not None:
                uploads.append(params[0])
            if own[i] is not None:
                own[i] = params[-1]
        if shared is not None:
            shared = average(uploads, clients)
        losses.append(of_round)
    return shared, losses


def golden_settings(participation: float, **compute: object) -> Settings:
    return make_settings(
        rounds=ROUNDS,
        local_epochs=EPOCHS,
        batch_size=BATCH,
        participation=participation,
        optimizer={"lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY},
        compute={"precision": "float64", **compute},
        seed=SEED,
    )


class Recorder:
    """Wraps a method's loss and remembers every value."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: type[Method]) -> None:
        self.steps: list[float] = []
        plain = method.loss

        def loss(*args: object) -> Tensor:
            value = plain(*args)
            self.steps.extend(value.detach().tolist())
            return value

        monkeypatch.setattr(method, "loss", loss)


def run_engine(
    method: Method, task: Task, data: FederatedData, settings: Settings
) -> tuple[Simulator, list[RoundReport]]:
    federation = simulator(method, settings, task=task, data=data)
    reports = [federation.run_round() for _ in range(ROUNDS)]
    return federation, reports


@cache
def exact_task() -> Task:
    task = make_task(torch.float64, std=0.3, seed=SEED)
    clip = copy.deepcopy(task.clip)
    with torch.no_grad():
        clip.logit_scale.fill_(-math.log(TAU))
    return replace(task, clip=clip)


@pytest.fixture(scope="module")
def task() -> Task:
    return exact_task()


TOLERANCE = 1e-10  # measured: prompts 8e-12, losses 1.2e-11 with transport; 5e-16 without


@cache
def restated_fedotp(
    mass: float, reg: float, n_views: int, participation: float
) -> tuple[Tensor, Tensor, list[list[float]], list[float]]:
    """The global prompt, all local ones, the losses of every round and of every step."""
    task = exact_task()
    restated = Restated(task, make_data(n_views=n_views), transport_scores(reg, mass), list, participation)
    P_g, P_l = task.contexts(2)
    local: list[Tensor | None] = [P_l for _ in TRAIN]
    shared, losses = averaged(restated, P_g, local)
    return shared, torch.stack(local), losses, restated.steps


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize(("mass", "reg", "n_views", "participation"), [(0.8, 0.1, 3, 0.6), (0.5, 0.05, 1, 1.0)])
def test_three_rounds_of_fedotp_are_algorithm_2(
    task: Task,
    monkeypatch: pytest.MonkeyPatch,
    mass: float,
    reg: float,
    n_views: int,
    participation: float,
    sequential: bool,
) -> None:
    recorder = Recorder(monkeypatch, FedOTP)
    settings = golden_settings(participation, sequential=sequential)
    federation, reports = run_engine(FedOTP(mass=mass, reg=reg), task, make_data(n_views=n_views), settings)
    shared, local, losses, steps = restated_fedotp(mass, reg, n_views, participation)
    torch.testing.assert_close(federation.server["shared"][0], shared, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(kept_rows(federation)["private"][:, 0], local, rtol=0, atol=TOLERANCE)
    for report, expected in zip(reports, losses, strict=True):
        np.testing.assert_allclose(report.loss, expected, rtol=0, atol=TOLERANCE)
        weights = [TRAIN[i] for i in report.sampled]
        assert report.mean_loss == pytest.approx(np.average(expected, weights=weights), abs=TOLERANCE)
    if sequential:  # then the steps come in the order of the restatement
        np.testing.assert_allclose(recorder.steps, steps, rtol=0, atol=TOLERANCE)
    assert {len(report.sampled) for report in reports} == {round(participation * len(TRAIN))}
    assert (shared - task.contexts(2)[0]).abs().max() > 0.05  # it moved


def test_three_rounds_of_promptfl(task: Task) -> None:
    data = make_data()
    federation, reports = run_engine(PromptFL(), task, data, golden_settings(0.6))
    restated = Restated(task, data, pooled_scores, list, 0.6)
    shared, losses = averaged(restated, task.contexts(1)[0], [None] * len(TRAIN))
    torch.testing.assert_close(federation.server["prompt"][0], shared, rtol=0, atol=TOLERANCE)
    for report, expected in zip(reports, losses, strict=True):
        np.testing.assert_allclose(report.loss, expected, rtol=0, atol=TOLERANCE)


def test_three_rounds_of_fedprox(task: Task) -> None:
    data, mu = make_data(), 0.7
    federation, reports = run_engine(PromptFLProx(mu=mu), task, data, golden_settings(0.6))

    def penalty(params: list[Tensor], received: list[Tensor]) -> Tensor:
        return mu / 2 * ((params[0] - received[0]) ** 2).sum()

    restated = Restated(task, data, pooled_scores, list, 0.6, penalty)
    shared, losses = averaged(restated, task.contexts(1)[0], [None] * len(TRAIN))
    torch.testing.assert_close(federation.server["prompt"][0], shared, rtol=0, atol=TOLERANCE)
    for report, expected in zip(reports, losses, strict=True):
        np.testing.assert_allclose(report.loss, expected, rtol=0, atol=TOLERANCE)


def test_three_rounds_of_local_coop(task: Task) -> None:
    data = make_data()
    federation, _ = run_engine(CoOp(), task, data, golden_settings(0.6))
    own: list[Tensor | None] = [task.contexts(1)[0] for _ in TRAIN]
    averaged(Restated(task, data, pooled_scores, list, 0.6), None, own)
    torch.testing.assert_close(kept_rows(federation)["prompt"][:, 0], torch.stack(own), rtol=0, atol=TOLERANCE)
    assert federation.server == {}


def test_three_rounds_of_fedper(task: Task) -> None:
    """The first of three context vectors is shared."""
    data = make_data()
    federation, _ = run_engine(PromptFLPer(), task, data, golden_settings(0.6))
    context = task.contexts(1)[0]
    own: list[Tensor | None] = [context[1:] for _ in TRAIN]
    restated = Restated(task, data, pooled_scores, lambda params: [torch.cat(params)], 0.6)
    shared, _ = averaged(restated, context[:1], own)
    torch.testing.assert_close(federation.server["base"][0], shared, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(kept_rows(federation)["personal"][:, 0], torch.stack(own), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_three_rounds_of_fedamp(task: Task, sigma: float) -> None:
    """u_i = sum_j xi_ij P_j over the clients that have sent, with the formula's self-weight."""
    data, mu, strength = make_data(), 0.7, 0.9
    method = PromptFLAmp(strength=strength, sigma=sigma, mu=mu)
    federation, reports = run_engine(method, task, data, golden_settings(0.6))

    last = [task.contexts(1)[0] for _ in TRAIN]
    sent: list[int] = []

    def mixture(i: int) -> Tensor:
        if not sent:
            return last[i].clone()
        pairs = [((last[j] - last[k]) ** 2).sum() for j in sent for k in sent if j != k]
        scale = sigma or float(sum(pairs) / len(pairs))
        xi = {j: strength / len(sent) * torch.exp(-((last[i] - last[j]) ** 2).sum() / scale) for j in sent if j != i}
        return sum(xi[j] * last[j] for j in xi) + (1 - sum(xi.values())) * last[i]

    def penalty(params: list[Tensor], received: list[Tensor]) -> Tensor:
        return mu / 2 * ((params[0] - received[0]) ** 2).sum()

    restated = Restated(task, data, pooled_scores, list, 0.6, penalty)
    for round_ in range(ROUNDS):
        clients = restated.sampled(round_)
        trained = {}
        for place, i in enumerate(clients):
            u = mixture(i)
            params = [u.clone()]
            loss = restated.train(round_, i, params, [u])
            assert reports[round_].loss[place] == pytest.approx(loss, abs=TOLERANCE)
            trained[i] = params[0]
        for i, prompt in trained.items():
            last[i] = prompt
        sent = sorted({*sent, *trained})
    torch.testing.assert_close(federation.server["prompts"][:, 0], torch.stack(last), rtol=0, atol=TOLERANCE)
    assert federation.server["sent"].nonzero().flatten().tolist() == sent
    torch.testing.assert_close(kept_rows(federation)["prompt"][:, 0], torch.stack(last), rtol=0, atol=TOLERANCE)
