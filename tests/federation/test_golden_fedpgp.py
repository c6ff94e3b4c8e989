"""Three rounds of FedPGP against its paper's equations, and with its code's anchor "x", client by client in float64."""

import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from golden import (
    SEED,
    TOLERANCE,
    Restated,
    averaged,
    exact_task,
    golden_settings,
    pooled_scores,
    run_engine,
    text_features,
    unit,
)
from torch import Tensor
from toy_federation import CLASSES, TRAIN, kept_rows, make_data

from fedotp.methods import Task
from fedotp.methods._fedpgp import FedPGP


def drawn(purpose: str, *shape: int) -> Tensor:
    """The documented draws: torch's, seeded with CRC-32 of the seed and the purpose, of standard deviation 0.02."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{SEED} {purpose}".encode()))
    return 0.02 * torch.randn(shape, generator=generator).double()


def captions(task: Task, anchor: str) -> Tensor:
    """Features (K, e) of the captions, all 77 positions of them."""
    template = {"template": "a photo of a {}.", "x": "X X X {}."}[anchor]
    words = task.clip.tokenizer
    rows = [[words.sot, *words.encode(template.format(name)), words.eot] for name in CLASSES]
    ids = torch.tensor([row + [0] * (77 - len(row)) for row in rows])
    ends = torch.tensor([len(row) - 1 for row in rows])
    return task.clip.encode_embeddings(task.clip.token_embedding(ids), ends).detach()


@pytest.mark.parametrize(
    ("rank", "mu", "tau", "anchor", "kgcoop"),
    [(8, 0.5, 0.5, "template", 0.0), (2, 3.0, 0.1, "x", 8.0), (1, 0.0, 0.5, "template", 0.0)],
)
def test_three_rounds_of_fedpgp(rank: int, mu: float, tau: float, anchor: str, kgcoop: float) -> None:
    task, data = replace(exact_task(), prompt=replace(exact_task().prompt, kgcoop=kgcoop)), make_data()
    method = FedPGP(rank=rank, mu=mu, tau=tau, anchor=anchor)
    federation, reports = run_engine(method, task, data, golden_settings(0.6))
    known, template = captions(task, anchor), captions(task, "template")

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
    torch.testing.assert_close(federation.server.params["prompt"][0], sigma, rtol=0, atol=TOLERANCE)
    kept = kept_rows(federation)
    for name, of_clients in zip("uv", zip(*own, strict=True), strict=True):
        torch.testing.assert_close(kept[name][:, 0], torch.stack(of_clients), rtol=0, atol=TOLERANCE)
        assert (kept[name][0, 0] - start["uv".index(name)]).abs().max() > 1e-4  # it moved
    for report, expected in zip(reports, losses, strict=True):
        np.testing.assert_allclose(report.loss, expected, rtol=0, atol=TOLERANCE)
