"""What golden tests share: a straight-line restatement of Algorithm 2 in float64, and the engine's run beside it.

The restatement goes through the clients one by one and shares with the engine only the frozen text tower (its plain
path over all 77 positions) and the documented random draws: who is sampled, and in which order a client's images come.
"""

import copy
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor
from toy_federation import CLASSES, TRAIN, kept_rows, make_settings, make_task, simulator

from fedotp.federation import FederatedData, RoundReport, Settings, Simulator
from fedotp.methods import Method, Task

ROUNDS, EPOCHS, BATCH, LR, MOMENTUM, DECAY, SEED = 3, 2, 4, 0.05, 0.9, 5e-4, 11
TAU = 0.07  # of the tower
TOLERANCE = 1e-10  # measured: prompts 8e-12, losses 1.2e-11 with transport; 5e-16 without

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
    rates: list[float] = field(default_factory=list)  # factors on the learning rate, of each tensor; none: all 1

    def sampled(self, round_: int) -> list[int]:
        n = len(self.data)
        order = np.argsort(generator("sample", round_).random(n), kind="stable")
        return sorted(order[: max(1, round(self.participation * n))].tolist())

    def batches(self, round_: int, client: int) -> list[tuple[int, list[int]]]:
        """(crop, rows) of every step: each epoch a new order, cut into batches, the last one smaller."""
        rows = self.data.train.clients[client]
        draw = generator("batches", round_, client)
        found = []
        for epoch in range(EPOCHS):
            order = np.argsort(draw.random(len(rows)), kind="stable").tolist()
            crop = (round_ * EPOCHS + epoch) % self.data.train.features.n_crops
            while order:
                found.append((crop, [int(rows[place]) for place in order[:BATCH]]))
                order = order[BATCH:]
        return found

    def train(self, round_: int, client: int, params: list[Tensor], received: list[Tensor]) -> float:
        """All local steps; returns the mean objective over the images seen."""
        for param in params:
            param.requires_grad_()
        optimizer = self.optimizer(params)
        total, seen = 0.0, 0
        for crop, rows in self.batches(round_, client):
            held = self.data.train.features
            pooled, tokens = held.pooled[crop][rows].double(), held.tokens[crop][rows].double()
            labels = torch.from_numpy(self.data.train.labels[rows])
            loss = self.objective(params, received, pooled, tokens, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, seen = total + float(loss.detach()) * len(rows), seen + len(rows)
        for param in params:
            param.requires_grad_(False)
        return total / seen

    def optimizer(self, params: list[Tensor]) -> torch.optim.Optimizer:
        """A fresh one for every client and round."""
        rates = self.rates or [1.0] * len(params)
        groups = [{"params": [param], "lr": LR * rate} for param, rate in zip(params, rates, strict=True)]
        return torch.optim.SGD(groups, momentum=MOMENTUM, weight_decay=DECAY)

    def objective(
        self, params: list[Tensor], received: list[Tensor], pooled: Tensor, tokens: Tensor, labels: Tensor
    ) -> Tensor:
        """Eq. 2 and the penalty; a method with another objective has it here."""
        features = [text_features(self.task, prompt) for prompt in self.prompts(params)]
        return cross_entropy(self.score(pooled, tokens, features), labels) + self.penalty(params, received)


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    q = torch.softmax(scores / TAU, dim=-1)
    return -torch.log(q[torch.arange(len(labels)), labels]).mean()


def average(parts: list[Tensor], clients: list[int]) -> Tensor:
    """Eq. 4."""
    total = sum(TRAIN[i] for i in clients)
    return sum(TRAIN[i] / total * part for i, part in zip(clients, parts, strict=True))


def averaged(
    restated: Restated, shared: list[Tensor], own: list[list[Tensor]]
) -> tuple[list[Tensor], list[list[float]]]:
    """Rounds of methods whose server averages `shared` and whose clients keep `own`, which is changed.

    A client trains [*shared, *own[i]]. Returns what the server ends with and the losses of the clients of each round.
    """
    losses = []
    for round_ in range(ROUNDS):
        clients = restated.sampled(round_)
        uploads, of_round = [], []
        for i in clients:
            params = [x.clone() for x in (*shared, *own[i])]
            of_round.append(restated.train(round_, i, params, shared))
            uploads.append(params[: len(shared)])
            own[i] = params[len(shared) :]
        shared = [average([upload[j] for upload in uploads], clients) for j in range(len(shared))]
        losses.append(of_round)
    return shared, losses


def golden_settings(participation: float) -> Settings:
    return make_settings(
        rounds=ROUNDS,
        local_epochs=EPOCHS,
        batch_size=BATCH,
        participation=participation,
        optimizer={"lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY},
        compute={"precision": "float64"},
        seed=SEED,
    )


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


def captions(task: Task, template: str = "a photo of a {}.") -> Tensor:
    """Features (K, e) of the captions, all 77 positions of them."""
    words = task.clip.tokenizer
    rows = [[words.sot, *words.encode(template.format(name)), words.eot] for name in CLASSES]
    ids = torch.tensor([row + [0] * (77 - len(row)) for row in rows])
    ends = torch.tensor([len(row) - 1 for row in rows])
    return task.clip.encode_embeddings(task.clip.token_embedding(ids), ends).detach()


def assert_golden(
    federation: Simulator,
    reports: list[RoundReport],
    losses: list[list[float]],
    server: dict[str, Tensor],
    kept: dict[str, Sequence[Tensor]] | None = None,
) -> None:
    """The engine's losses of each round are these, its shared prompts `server`, and its clients' own ones `kept`."""
    for report, expected in zip(reports, losses, strict=True):
        np.testing.assert_allclose(report.loss, expected, rtol=0, atol=TOLERANCE)
    for name, value in server.items():
        torch.testing.assert_close(federation.server.params[name][0], value, rtol=0, atol=TOLERANCE)
    for name, own in (kept or {}).items():
        torch.testing.assert_close(kept_rows(federation)[name][:, 0], torch.stack([*own]), rtol=0, atol=TOLERANCE)
