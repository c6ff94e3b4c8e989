"""Three rounds of FedCLIP's adapter as in its paper and as in its code, client by client in float64.

The code was run by others and described in words: the restatement is of that description.
"""

from dataclasses import dataclass, replace

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
    cross_entropy,
    exact_task,
    golden_settings,
    pooled_scores,
    run_engine,
    unit,
)
from torch import Tensor, nn
from toy_federation import CLASSES, make_data

from fedotp.federation import OptimizerSettings
from fedotp.methods import Task
from fedotp.methods._fedclip import FedCLIP

NAMES = ("first_weight", "first_bias", "second_weight", "second_bias")


def drawn_by_torch(width: int) -> list[Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        layers = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
    return [value.detach().double() for value in layers.parameters()]


def captions(task: Task) -> Tensor:
    """Features (K, e) of the captions, all 77 positions of them."""
    words = task.clip.tokenizer
    rows = [[words.sot, *words.encode(f"a photo of a {name}."), words.eot] for name in CLASSES]
    ids = torch.tensor([row + [0] * (77 - len(row)) for row in rows])
    ends = torch.tensor([len(row) - 1 for row in rows])
    return task.clip.encode_embeddings(task.clip.token_embedding(ids), ends).detach()


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
@pytest.mark.parametrize("adam", [None, replace(AUTHORS, beta2=0.999), AUTHORS], ids=["sgd", "adam", "authors"])
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
