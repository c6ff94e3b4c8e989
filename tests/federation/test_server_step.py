"""The server's step against Flower's strategies and torch.optim, and what it leaves alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from toy_federation import assert_same_bits, make_settings, simulator, state_of

from fedotp.federation import ServerStepSettings
from fedotp.federation.server._step import ServerStep
from fedotp.methods import Parameters
from fedotp.methods._method import weighted_average

ADAPTIVE = {"lr": 0.02, "beta1": 0.8, "beta2": 0.95, "epsilon": 1e-2}
STEPS = {
    "average": ServerStepSettings(),
    "momentum": ServerStepSettings("momentum", lr=0.7, momentum=0.8),
    "adam": ServerStepSettings("adam", **ADAPTIVE),
    "yogi": ServerStepSettings("yogi", **ADAPTIVE),
}
WEIGHTS = (3, 1, 7, 2)
ROUNDS = 12


def uploads_of(round_: int, server: Parameters) -> Parameters:
    """What four clients make of the server's parameters in a round, (4, ...)."""
    generator = torch.Generator().manual_seed(round_)
    return {
        name: value + 0.1 * torch.randn(len(WEIGHTS), *value.shape, generator=generator, dtype=value.dtype)
        for name, value in server.items()
    }


def start(dtype: torch.dtype = torch.float64) -> Parameters:
    generator = torch.Generator().manual_seed(99)
    shapes = {"prompt": (2, 3), "other": (4,)}
    return {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in shapes.items()}


def stepped(step: ServerStep, server: Parameters, uploads: Parameters) -> Parameters:
    aggregated = {**server, **weighted_average(uploads, torch.tensor(WEIGHTS))}
    return step(server, aggregated, uploads)


def flowers_next(strategy: Any, server: Parameters, uploads: Parameters) -> Parameters:
    """What a strategy of Flower makes of the uploads, in a round so late that it no longer corrects for the first."""
    from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

    strategy.current_arrays = {name: value.numpy() for name, value in server.items()}
    replies = []
    for client, weight in enumerate(WEIGHTS):
        arrays = ArrayRecord({name: Array(value[client].numpy()) for name, value in uploads.items()})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": weight})})
        replies.append(SimpleNamespace(content=content, has_error=lambda: False))
    found, _ = strategy.aggregate_train(10**6, replies)
    return {name: torch.from_numpy(np.array(value.numpy())) for name, value in found.items()}


@pytest.mark.parametrize(("name", "strategy"), [("adam", "FedAdam"), ("yogi", "FedYogi")])
def test_flowers_strategies_make_the_same_steps_from_the_papers_start(name: str, strategy: str) -> None:
    """Their second moment would start from 0."""
    strategies = pytest.importorskip("flwr.serverapp.strategy")
    step, server = ServerStep(STEPS[name]), start()
    theirs = getattr(strategies, strategy)(eta=0.02, beta_1=0.8, beta_2=0.95, tau=1e-2)
    theirs.v_t = {key: np.full(value.shape, 1e-4) for key, value in server.items()}
    for round_ in range(ROUNDS):
        uploads = uploads_of(round_, server)
        expected = flowers_next(theirs, server, uploads)
        server = stepped(step, server, uploads)
        torch.testing.assert_close(server, expected, rtol=0, atol=1e-13)


def test_momentum_is_sgd_on_the_pseudo_gradient() -> None:
    step, server = ServerStep(STEPS["momentum"]), start()
    theirs = {name: value.clone().requires_grad_() for name, value in server.items()}
    optimizer = torch.optim.SGD(theirs.values(), lr=0.7, momentum=0.8)
    for round_ in range(ROUNDS):
        uploads = uploads_of(round_, server)
        for name, average in weighted_average(uploads, torch.tensor(WEIGHTS)).items():
            theirs[name].grad = server[name] - average  # a gradient points away from where clients go
        optimizer.step()
        server = stepped(step, server, uploads)
        torch.testing.assert_close(server, {k: v.detach() for k, v in theirs.items()}, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_in_float32_is_one_in_float64_rounded(name: str) -> None:
    single, double = ServerStep(STEPS[name]), ServerStep(STEPS[name])
    server = start(torch.float32)
    for round_ in range(ROUNDS):
        average = {key: value[0] for key, value in uploads_of(round_, server).items()}
        wide = double(*({key: value.double() for key, value in each.items()} for each in (server, average)), server)
        server = single(server, average, server)
        assert_same_bits(server, {key: value.float() for key, value in wide.items()})
    assert_same_bits(single.state, double.state)


def test_only_numbers_that_are_averaged_are_stepped() -> None:
    step = ServerStep(ServerStepSettings("momentum", lr=0.5))
    server = {"p": torch.zeros(2), "kept at the server": torch.zeros(2), "count": torch.zeros(1, dtype=torch.int64)}
    aggregated = {name: value + 4 for name, value in server.items()} | {"new": torch.ones(1)}
    found = step(server, aggregated, ["p", "count", "only clients have it"])
    assert {name: value.tolist() for name, value in found.items()} == {
        "p": [2, 2],
        "kept at the server": [4, 4],
        "count": [4],
        "new": [1],
    }
    assert list(step.state) == ["momentum.p"]


@pytest.mark.parametrize("method", ["promptfl-fedamp", "coop"])
def test_a_method_that_averages_nothing_runs_as_without(method: str) -> None:
    found = []
    for server in ({}, {"name": "adam", "lr": 0.02}):
        federation = simulator(method, make_settings(server=server))
        for _ in range(2):
            federation.run_round()
        assert federation.server.step.state == {}
        found.append(state_of(federation))
    assert_same_bits(*found)
