"""Three rounds of KgCoOp, FedPGP, FedPHA and DP-FPL against their papers' equations (or their code's variants), client
by client in float64.
"""

import zlib
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from golden import (
    SEED,
    Restated,
    assert_golden,
    averaged,
    captions,
    cross_entropy,
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

from fedotp.methods import FedOTP, Method
from fedotp.methods._dpfpl import DPFPL
from fedotp.methods._fedpgp import FedPGP
from fedotp.methods._fedpha import FedPHA
from fedotp.methods._promptfl import PromptFL

# KgCoOp's penalty --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [PromptFL(), FedOTP(mass=0.7)], ids=lambda method: method.name)
def test_three_rounds_near_the_captions(method: Method) -> None:
    weight, data = 8.0, make_data()
    task = replace(exact_task(), prompt=replace(exact_task().prompt, kgcoop=weight))
    federation, reports = run_engine(method, task, data, golden_settings(0.6))
    known = captions(task)

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
    kept = {"private": [prompt for (prompt,) in own]} if transported else {}
    assert_golden(federation, reports, losses, dict.fromkeys(federation.server.params, shared), kept)


# FedPGP ---------------------------------------------------------------------------------------------------

TEMPLATES = {"template": "a photo of a {}.", "x": "X X X {}."}


def drawn(purpose: str, *shape: int) -> Tensor:
    """The documented draws: torch's, seeded with CRC-32 of the seed and the purpose, of standard deviation 0.02."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{SEED} {purpose}".encode()))
    return 0.02 * torch.randn(shape, generator=generator).double()


@pytest.mark.parametrize(
    ("rank", "mu", "tau", "anchor", "kgcoop"), [(8, 0.5, 0.5, "template", 0.0), (2, 3.0, 0.1, "x", 8.0)]
)
def test_three_rounds_of_fedpgp(rank: int, mu: float, tau: float, anchor: str, kgcoop: float) -> None:
    task, data = replace(exact_task(), prompt=replace(exact_task().prompt, kgcoop=kgcoop)), make_data()
    method = FedPGP(rank=rank, mu=mu, tau=tau, anchor=anchor)
    federation, reports = run_engine(method, task, data, golden_settings(0.6))
    known, template = captions(task, TEMPLATES[anchor]), captions(task)

    def penalty(params: list[Tensor], _received: list[Tensor]) -> Tensor:
        sigma, U, V = params
        of_sigma, of_client = text_features(task, sigma), text_features(task, sigma + U @ V)
        terms, cosines = [], []
        for k in range(len(CLASSES)):
            a = unit(of_sigma[k]) @ unit(known[k])
            b = unit(of_sigma[k]) @ unit(of_client[k])
            terms.append(-torch.log(torch.exp(a / tau) / (torch.exp(a / tau) + torch.exp(b / tau))))
            cosines += [unit(features[k]) @ unit(template[k]) for features in (of_sigma, of_client)]
        return mu * sum(terms) / len(terms) + kgcoop * (1 - sum(cosines) / len(cosines))

    restated = Restated(task, data, pooled_scores, lambda params: [params[0] + params[1] @ params[2]], 0.6, penalty)
    start = [drawn("fedpgp u", 3, rank), drawn("fedpgp v", rank, 32)]
    own = [start for _ in TRAIN]
    (sigma,), losses = averaged(restated, [task.contexts(1)[0]], own)
    kept = dict(zip("uv", zip(*own, strict=True), strict=True))
    assert_golden(federation, reports, losses, {"prompt": sigma}, kept)
    assert all((kept[name][0] - first).abs().max() > 1e-4 for name, first in zip("uv", start, strict=True))  # it moved


# FedPHA ---------------------------------------------------------------------------------------------------


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
    ("rho", "alpha", "subspace", "n_ctx_private"), [(0.3, 1.0, "row", 0), (0.1, 1.4, "null", 2), (0.6, 0.3, "row", 4)]
)
def test_three_rounds_of_fedpha(rho: float, alpha: float, subspace: str, n_ctx_private: int) -> None:
    """Of three vectors 2, 2 and 1 singular vectors are left out; hinges that are and that are not at work."""
    task, data = exact_task(), make_data()
    method = FedPHA(rho=rho, alpha=alpha, subspace=subspace, n_ctx_private=n_ctx_private)
    federation, reports = run_engine(method, task, data, golden_settings(0.6))
    restated = RestatedFedPHA(task, data, pooled_scores, list, 0.6, rho=rho, alpha=alpha, subspace=subspace)
    start = task.contexts(2, n_ctx_private or None)[1]
    own = [[start] for _ in TRAIN]
    (shared,), losses = averaged(restated, [task.contexts(2)[0]], own)
    assert_golden(federation, reports, losses, {"prompt": shared}, {"local": [mine for (mine,) in own]})
    assert set(kept_rows(federation)) == {"local"}
    assert start.shape == (n_ctx_private or 3, 32)
    assert (shared - task.contexts(2)[0]).abs().max() > 0.05  # it moved
    assert any(restated.hinges) == (alpha >= 1)


# DP-FPL ---------------------------------------------------------------------------------------------------

RANK = 2


class Factored(Restated):
    """The private prompt's step as a linear map of its gradient G.

    With A and B the projections onto the columns of u and the rows of v, g_u v + u g_v - u u' g_u v is
    G B + A G - A G B. In the code, known from a description, the last term is added, and gradients are divided by 10.
    """

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


@pytest.mark.parametrize(("participation", "variant"), [(1.0, "paper"), (0.6, "code")])
def test_golden_dpfpl(participation: float, variant: str) -> None:
    task, data = exact_task(), make_data(n_crops=2)
    restated = Factored(task, data, pooled_scores, prompts=lambda params: [params[0] + params[1]])
    restated.participation, restated.code = participation, variant == "code"
    method = DPFPL(rank=RANK, variant=variant)
    start = method.private(task)["local"][0].double()
    own = [[start.clone()] for _ in TRAIN]
    (shared,), losses = averaged(restated, [task.contexts(1)[0].double()], own)
    federation, reports = run_engine(method, task, data, golden_settings(participation))
    assert_golden(federation, reports, losses, {"prompt": shared}, {"local": [mine for (mine,) in own]})
    assert max(float((row[0] - start).abs().max()) for row in kept_rows(federation)["local"]) > 0.001


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
