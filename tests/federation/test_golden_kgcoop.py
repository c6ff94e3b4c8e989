"""Three rounds with KgCoOp's penalty on PromptFL and on FedOTP, against its paper's equation in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from golden import (
    TOLERANCE,
    Restated,
    averaged,
    exact_task,
    golden_settings,
    pooled_scores,
    run_engine,
    text_features,
    transport_scores,
    unit,
)
from torch import Tensor
from toy_federation import CLASSES, TRAIN, kept_rows, make_data

from fedotp.methods import FedOTP, Method, PromptFL


@pytest.mark.parametrize("method", [PromptFL(), FedOTP(mass=0.7)], ids=lambda method: method.name)
def test_three_rounds_near_the_captions(method: Method) -> None:
    weight, data = 8.0, make_data()
    task = replace(exact_task(), prompt=replace(exact_task().prompt, kgcoop=weight))
    federation, reports = run_engine(method, task, data, golden_settings(0.6))
    words = task.clip.tokenizer([f"a photo of a {name}." for name in CLASSES], 77)
    known = task.clip.encode_text(words).detach()

    def penalty(params: list[Tensor], _received: list[Tensor]) -> Tensor:
        each = []
        for prompt in params:
            features = text_features(task, prompt)
            cosines = [unit(features[k]) @ unit(known[k]) for k in range(len(CLASSES))]
            each.append(1 - sum(cosines) / len(cosines))
        return weight * sum(each) / len(each)

    transported = isinstance(method, FedOTP)
    score = transport_scores(method.reg, method.mass) if transported else pooled_scores
    P_g, *P_l = task.contexts(2 if transported else 1)
    own = [list(P_l) for _ in TRAIN]
    (shared,), losses = averaged(Restated(task, data, score, list, 0.6, penalty), [P_g], own)
    (served,) = federation.server.params.values()
    torch.testing.assert_close(served[0], shared, rtol=0, atol=TOLERANCE)
    if transported:
        local = torch.stack([prompt for (prompt,) in own])
        torch.testing.assert_close(kept_rows(federation)["private"][:, 0], local, rtol=0, atol=TOLERANCE)
    for report, expected in zip(reports, losses, strict=True):
        np.testing.assert_allclose(report.loss, expected, rtol=0, atol=TOLERANCE)
