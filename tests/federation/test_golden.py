"""Rounds of the engine against straight-line restatements of the paper's Algorithm 2 and of what it compares."""

import numpy as np
import pytest
import torch
from golden import (
    ROUNDS,
    TOLERANCE,
    Restated,
    Scorer,
    assert_golden,
    averaged,
    exact_task,
    golden_settings,
    pooled_scores,
    run_engine,
    transport_scores,
    unit,
)
from torch import Tensor
from toy_federation import TRAIN, kept_rows, make_data

from fedotp.methods import FedOTP, Task
from fedotp.methods._fedamp import PromptFLAmp
from fedotp.methods._promptfl import CoOp, PromptFL, PromptFLPer, PromptFLProx
from fedotp.methods._promptfolio import PromptFolio


@pytest.fixture(scope="module")
def task() -> Task:
    return exact_task()


@pytest.mark.parametrize(("mass", "reg", "n_crops", "participation"), [(0.8, 0.1, 3, 0.6), (0.5, 0.05, 1, 1.0)])
def test_three_rounds_of_fedotp_are_algorithm_2(
    task: Task, mass: float, reg: float, n_crops: int, participation: float
) -> None:
    data = make_data(n_crops=n_crops)
    federation, reports = run_engine(FedOTP(mass=mass, reg=reg), task, data, golden_settings(participation))
    P_g, P_l = task.contexts(2)
    own = [[P_l] for _ in TRAIN]
    restated = Restated(task, data, transport_scores(reg, mass), list, participation)
    (shared,), losses = averaged(restated, [P_g], own)
    assert_golden(federation, reports, losses, {"shared": shared}, {"private": [prompt for (prompt,) in own]})
    for report, expected in zip(reports, losses, strict=True):
        weights = [TRAIN[i] for i in report.sampled]
        assert report.mean_loss == pytest.approx(np.average(expected, weights=weights), abs=TOLERANCE)
    assert {len(report.sampled) for report in reports} == {round(participation * len(TRAIN))}
    assert (shared - P_g).abs().max() > 0.05  # it moved


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_three_rounds_of_promptfl_and_fedprox(task: Task, mu: float) -> None:
    data = make_data()
    method = PromptFLProx(mu=mu) if mu else PromptFL()
    federation, reports = run_engine(method, task, data, golden_settings(0.6))

    def penalty(params: list[Tensor], received: list[Tensor]) -> Tensor:
        return mu / 2 * ((params[0] - received[0]) ** 2).sum()

    restated = Restated(task, data, pooled_scores, list, 0.6, penalty)
    (shared,), losses = averaged(restated, [task.contexts(1)[0]], [[] for _ in TRAIN])
    assert_golden(federation, reports, losses, {"prompt": shared})


def test_three_rounds_of_local_coop(task: Task) -> None:
    data = make_data()
    federation, reports = run_engine(CoOp(), task, data, golden_settings(0.6))
    own = [[task.contexts(1)[0]] for _ in TRAIN]
    _, losses = averaged(Restated(task, data, pooled_scores, list, 0.6), [], own)
    assert_golden(federation, reports, losses, {}, {"prompt": [P for (P,) in own]})
    assert federation.server.params == {}


def test_three_rounds_of_fedper(task: Task) -> None:
    """The first of three context vectors is shared."""
    data = make_data()
    federation, reports = run_engine(PromptFLPer(), task, data, golden_settings(0.6))
    context = task.contexts(1)[0]
    own = [[context[1:]] for _ in TRAIN]
    restated = Restated(task, data, pooled_scores, lambda params: [torch.cat(params)], 0.6)
    (shared,), losses = averaged(restated, [context[:1]], own)
    assert_golden(federation, reports, losses, {"base": shared}, {"personal": [P for (P,) in own]})


@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_three_rounds_of_fedamp(task: Task, sigma: float) -> None:
    """u_i = sum_j xi_ij P_j over the clients that have sent, with the formula's self-weight."""
    data, mu, strength = make_data(), 0.7, 0.9
    method = PromptFLAmp(strength=strength, sigma=sigma, mu=mu)
    federation, reports = run_engine(method, task, data, golden_settings(0.6))

    last = [task.contexts(1)[0] for _ in TRAIN]
    sent: list[int] = []

    def mixture(i: int) -> Tensor:
        if not sent:
            return last[i].clone()
        pairs = [((last[j] - last[k]) ** 2).sum() for j in sent for k in sent if j != k]
        scale = sigma or float(sum(pairs) / len(pairs))
        xi = {j: strength / len(sent) * torch.exp(-((last[i] - last[j]) ** 2).sum() / scale) for j in sent if j != i}
        return sum(xi[j] * last[j] for j in xi) + (1 - sum(xi.values())) * last[i]

    def penalty(params: list[Tensor], received: list[Tensor]) -> Tensor:
        return mu / 2 * ((params[0] - received[0]) ** 2).sum()

    restated = Restated(task, data, pooled_scores, list, 0.6, penalty)
    for round_ in range(ROUNDS):
        clients = restated.sampled(round_)
        trained = {}
        for place, i in enumerate(clients):
            u = mixture(i)
            params = [u.clone()]
            loss = restated.train(round_, i, params, [u])
            assert reports[round_].loss[place] == pytest.approx(loss, abs=TOLERANCE)
            trained[i] = params[0]
        for i, prompt in trained.items():
            last[i] = prompt
        sent = sorted({*sent, *trained})
    torch.testing.assert_close(federation.server.params["prompts"][:, 0], torch.stack(last), rtol=0, atol=TOLERANCE)
    assert federation.server.params["sent"].nonzero().flatten().tolist() == sent
    torch.testing.assert_close(kept_rows(federation)["prompt"][:, 0], torch.stack(last), rtol=0, atol=TOLERANCE)


def mixed_scores(theta: float) -> Scorer:
    def score(pooled: Tensor, _tokens: Tensor, features: list[Tensor]) -> Tensor:
        z_g, z_l = (unit(H) for H in features)
        return unit(pooled) @ ((1 - theta) * z_g + theta * z_l).T

    return score


def test_three_rounds_of_promptfolio(task: Task) -> None:
    data, theta = make_data(), 0.4
    federation, reports = run_engine(PromptFolio(theta=theta), task, data, golden_settings(0.6))
    P_g, P_l = task.contexts(2)
    own = [[P_l] for _ in TRAIN]
    (shared,), losses = averaged(Restated(task, data, mixed_scores(theta), list, 0.6), [P_g], own)
    assert_golden(federation, reports, losses, {"prompt": shared}, {"private": [prompt for (prompt,) in own]})
    assert (shared - P_g).abs().max() > 0.01  # it moved
