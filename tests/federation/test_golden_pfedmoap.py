"""Three rounds of pFedMoAP as in its paper, client by client, class by class; and with experts in its code's order.

Attention is torch's own: its weights for queries are multiplied so that logits come out ten times q . k.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from golden import ROUNDS, TOLERANCE, Restated, average, exact_task, golden_settings, run_engine, text_features, unit
from torch import Tensor
from torch.nn.functional import multi_head_attention_forward
from toy_federation import CLASSES, TRAIN, kept_rows, make_data

from fedotp.methods._pfedmoap import PFedMoAP

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
