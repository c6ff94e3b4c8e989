"""Three rounds of FedPHA against its paper's equations, and with its code's "row", client by client in float64."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from golden import (
    TOLERANCE,
    Restated,
    averaged,
    cross_entropy,
    exact_task,
    golden_settings,
    pooled_scores,
    run_engine,
    text_features,
    unit,
)
from torch import Tensor
from toy_federation import TRAIN, kept_rows, make_data

from fedotp.methods._fedpha import FedPHA


def subspace_basis(P_g: Tensor, rho: float, subspace: str) -> Tensor:
    """W (d, ...) with P~ = P_l W W', of NumPy's singular vectors: all that is not among the first ones, or less."""
    V = np.linalg.svd(P_g.numpy(), full_matrices=subspace == "null")[2].T
    return torch.from_numpy(V[:, int(len(P_g) * (1 - rho)) :].copy())


@dataclass
class RestatedFedPHA(Restated):
    rho: float = 0.8
    alpha: float = 1.0
    subspace: str = "null"
    hinges: list[float] = field(default_factory=list)

    def objective(
        self, params: list[Tensor], received: list[Tensor], pooled: Tensor, tokens: Tensor, labels: Tensor
    ) -> Tensor:
        P_g, P_l = params
        W = subspace_basis(received[0], self.rho, self.subspace)
        z_g, z_l, z_projected = (unit(text_features(self.task, P)) for P in (P_g, P_l, P_l @ W @ W.T))
        fits = [cross_entropy(pooled_scores(pooled, tokens, [z]), labels) for z in (z_l, z_g)]
        mse = torch.nn.functional.mse_loss(z_l, z_projected)
        distances = [(one - other).norm() for one, other in zip(z_l, z_g, strict=True)]
        hinge = sum(torch.relu(self.alpha - distance) for distance in distances) / len(distances)
        self.hinges.append(float(hinge.detach()))
        return sum(fits) + mse + hinge


@pytest.mark.parametrize(
    ("rho", "alpha", "subspace", "n_ctx_private"),
    [(0.5, 1.0, "null", 0), (0.3, 1.0, "row", 0), (0.1, 1.4, "null", 2), (0.6, 0.3, "row", 4)],
)
def test_three_rounds_of_fedpha(rho: float, alpha: float, subspace: str, n_ctx_private: int) -> None:
    """Of three vectors 1, 2, 2 and 1 singular vectors are left out; hinges that are and that are not at work."""
    task, data = exact_task(), make_data()
    method = FedPHA(rho=rho, alpha=alpha, subspace=subspace, n_ctx_private=n_ctx_private)
    federation, reports = run_engine(method, task, data, golden_settings(0.6))
    restated = RestatedFedPHA(task, data, pooled_scores, list, 0.6, rho=rho, alpha=alpha, subspace=subspace)
    start = task.contexts(2, n_ctx_private or None)[1]
    own = [[start] for _ in TRAIN]
    (shared,), losses = averaged(restated, [task.contexts(2)[0]], own)
    torch.testing.assert_close(federation.server.params["prompt"][0], shared, rtol=0, atol=TOLERANCE)
    kept = kept_rows(federation)
    assert set(kept) == {"local"}
    torch.testing.assert_close(kept["local"][:, 0], torch.stack([mine for (mine,) in own]), rtol=0, atol=TOLERANCE)
    for report, expected in zip(reports, losses, strict=True):
        np.testing.assert_allclose(report.loss, expected, rtol=0, atol=TOLERANCE)
    assert start.shape == (n_ctx_private or 3, 32)
    assert (shared - task.contexts(2)[0]).abs().max() > 0.05  # it moved
    assert any(restated.hinges) == (alpha >= 1)
