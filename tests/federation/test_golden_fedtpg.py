"""Three rounds of FedTPG against its paper restated with torch's own modules, client by client."""

import numpy as np
import pytest
import torch
from golden import ROUNDS, TOLERANCE, Restated, exact_task, golden_settings, run_engine, text_features, unit
from torch import Tensor, nn
from toy_federation import CLASSES, TRAIN, make_data

from fedotp.methods import Parameters
from fedotp.methods._fedtpg import FedTPG

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
