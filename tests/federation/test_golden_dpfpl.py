"""DP-FPL restated: the step of the private prompt as one linear map of its gradient, clients one by one, in float64."""

import numpy as np
import pytest
import torch
from golden import ROUNDS, SEED, TOLERANCE, Restated, averaged, exact_task, golden_settings, pooled_scores, run_engine
from torch import Tensor
from toy_federation import TRAIN, kept_rows, make_data

from fedotp.methods import DPFPL


class Factored(Restated):
    """p_L moves by M(G) = u u' G + (1 - u u') G v' v of the gradient G, which is g_u v + u g_v - u u' g_u v."""

    def objective(self, params: list[Tensor], received: list[Tensor], *batch: Tensor) -> Tensor:
        local = params[1].detach().numpy()
        begin = torch.randn(local.shape[1], RANK, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        columns = local @ begin.numpy()
        u = np.zeros_like(columns)
        for k in range(RANK):  # Gram and Schmidt
            left = columns[:, k] - u[:, :k] @ (u[:, :k].T @ columns[:, k])
            u[:, k] = left / np.linalg.norm(left)
        v = u.T @ local
        onto, inner = torch.from_numpy(u @ u.T), torch.from_numpy(v.T @ v)
        moved = params[1] - params[1].detach()  # 0, but not its gradient
        mapped = onto @ moved + (torch.eye(len(u), dtype=torch.float64) - onto) @ moved @ inner
        return super().objective([params[0], params[1].detach() + mapped], received, *batch)


RANK = 2


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_golden_dpfpl(participation: float) -> None:
    task, data = exact_task(), make_data(n_views=2)
    restated = Factored(task, data, pooled_scores, prompts=lambda params: [params[0] + params[1]])
    restated.participation = participation
    method = DPFPL(rank=RANK)
    start = method.private(task)["local"][0].double()
    own = [[start.clone()] for _ in TRAIN]
    (shared,), losses = averaged(restated, [task.contexts(1)[0].double()], own)
    federation, reports = run_engine(method, task, data, golden_settings(participation))
    assert (federation.server["prompt"][0] - shared).abs().max() <= TOLERANCE
    found = kept_rows(federation)["local"]
    assert max(float((row[0] - mine[0]).abs().max()) for row, mine in zip(found, own, strict=True)) <= TOLERANCE
    assert max(float((row[0] - start).abs().max()) for row in found) > 0.01
    for report, expected in zip(reports, losses, strict=True):
        np.testing.assert_allclose(report.loss, expected, rtol=0, atol=TOLERANCE)
    assert len(reports) == ROUNDS
    assert SEED


def test_factors_of_full_rank_are_the_prompt_itself() -> None:
    task = exact_task()
    local = DPFPL().private(task)["local"]
    u, v = DPFPL(rank=8)._factors(local)
    assert u.shape[-1] == 3  # no more than there are vectors
    torch.testing.assert_close(u @ v, local)
    torch.testing.assert_close(u.mT @ u, torch.eye(3, dtype=torch.float64).expand(1, 3, 3))
