"""DP-FPL as in its paper and as in its code: the private prompt's step as a linear map of its gradient G, in float64.

With A and B the projections onto the columns of u and the rows of v, g_u v + u g_v - u u' g_u v is G B + A G - A G B.
The code was run by others and described in words: there the last term is added, and gradients are divided by 10.
"""

import numpy as np
import pytest
import torch
from golden import ROUNDS, SEED, TOLERANCE, Restated, averaged, exact_task, golden_settings, pooled_scores, run_engine
from torch import Tensor
from toy_federation import TRAIN, kept_rows, make_data

from fedotp.methods._dpfpl import DPFPL


class Factored(Restated):
    code = False

    def objective(self, params: list[Tensor], received: list[Tensor], *batch: Tensor) -> Tensor:
        local = params[1].detach().numpy()
        begin = torch.randn(local.shape[1], RANK, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        u = np.linalg.qr(local @ begin.numpy()).Q
        v = np.linalg.qr(local.T @ u).Q.T
        A, B = torch.from_numpy(u @ u.T), torch.from_numpy(v.T @ v)
        shared, own = (param - param.detach() for param in params)  # 0, but not their gradients
        sign, divisor = (1, 10) if self.code else (-1, 1)
        mapped = own @ B + A @ own + sign * A @ own @ B
        prompts = [params[0].detach() + shared / divisor, params[1].detach() + mapped / divisor]
        return super().objective(prompts, received, *batch)


RANK = 2


@pytest.mark.parametrize("variant", ["paper", "code"])
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_golden_dpfpl(participation: float, variant: str) -> None:
    task, data = exact_task(), make_data(n_crops=2)
    restated = Factored(task, data, pooled_scores, prompts=lambda params: [params[0] + params[1]])
    restated.participation, restated.code = participation, variant == "code"
    method = DPFPL(rank=RANK, variant=variant)
    start = method.private(task)["local"][0].double()
    own = [[start.clone()] for _ in TRAIN]
    (shared,), losses = averaged(restated, [task.contexts(1)[0].double()], own)
    federation, reports = run_engine(method, task, data, golden_settings(participation))
    assert (federation.server.params["prompt"][0] - shared).abs().max() <= TOLERANCE
    found = kept_rows(federation)["local"]
    assert max(float((row[0] - mine[0]).abs().max()) for row, mine in zip(found, own, strict=True)) <= TOLERANCE
    assert max(float((row[0] - start).abs().max()) for row in found) > 0.001
    for report, expected in zip(reports, losses, strict=True):
        np.testing.assert_allclose(report.loss, expected, rtol=0, atol=TOLERANCE)
    assert len(reports) == ROUNDS
    assert SEED


def test_with_factors_of_full_rank_the_private_prompt_follows_its_gradient() -> None:
    """Then both spans are all there is in it, and the step of the paper is the plain one."""
    task = exact_task()
    local = DPFPL().private(task)["local"]
    leaves = DPFPL(rank=8).leaves({"local": local}, ["local"])
    u, v = leaves["u"], leaves["v"]
    assert u.shape[-1] == 3  # no more than there are vectors
    identity = torch.eye(3, dtype=torch.float64).expand(1, 3, 3)
    torch.testing.assert_close(u.mT @ u, identity)
    torch.testing.assert_close(v @ v.mT, identity)
    gradient = torch.randn(local.shape, dtype=torch.float64)
    found = DPFPL(rank=8).gradients(leaves, {"u": gradient @ v.mT, "v": u.mT @ gradient})
    torch.testing.assert_close(found["local"], gradient)
