"""Three rounds of PromptFolio against its paper's equations, client by client in float64."""

import numpy as np
import pytest
import torch
from golden import TOLERANCE, Restated, Scorer, averaged, exact_task, golden_settings, run_engine, unit
from torch import Tensor
from toy_federation import TRAIN, kept_rows, make_data

from fedotp.methods._promptfolio import PromptFolio


def mixed_scores(theta: float) -> Scorer:
    def score(pooled: Tensor, _tokens: Tensor, features: list[Tensor]) -> Tensor:
        z_g, z_l = (unit(H) for H in features)
        return unit(pooled) @ ((1 - theta) * z_g + theta * z_l).T

    return score


@pytest.mark.parametrize("theta", [0.4, 0.9])
def test_three_rounds_of_promptfolio(theta: float) -> None:
    task, data = exact_task(), make_data()
    federation, reports = run_engine(PromptFolio(theta=theta), task, data, golden_settings(0.6))
    P_g, P_l = task.contexts(2)
    own = [[P_l] for _ in TRAIN]
    (shared,), losses = averaged(Restated(task, data, mixed_scores(theta), list, 0.6), [P_g], own)
    torch.testing.assert_close(federation.server.params["prompt"][0], shared, rtol=0, atol=TOLERANCE)
    local = torch.stack([prompt for (prompt,) in own])
    torch.testing.assert_close(kept_rows(federation)["private"][:, 0], local, rtol=0, atol=TOLERANCE)
    for report, expected in zip(reports, losses, strict=True):
        np.testing.assert_allclose(report.loss, expected, rtol=0, atol=TOLERANCE)
    assert (shared - P_g).abs().max() > 0.01  # it moved
