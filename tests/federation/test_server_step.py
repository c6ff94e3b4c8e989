"""The server's step against Flower's strategies and torch.optim; what it leaves alone; how it is kept."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toy_federation import assert_same_bits, make_settings, simulator, state_of

from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint, Progress, ServerStepSettings
from fedotp.federation.server._step import ServerStep
from fedotp.methods import Parameters, weighted_average

STEPS = {
    "momentum": ServerStepSettings("momentum", lr=0.7, momentum=0.8),
    "adam": ServerStepSettings("adam", lr=0.02, beta1=0.8, beta2=0.95, epsilon=1e-2),
    "yogi": ServerStepSettings("yogi", lr=0.02, beta1=0.8, beta2=0.95, epsilon=1e-2),
}
WEIGHTS = (3, 1, 7, 2)
ROUNDS = 12


def uploads_of(round_: int, server: Parameters, size: float = 0.1) -> Parameters:
    """What four clients make of the server's parameters in a round, (4, ...)."""
    generator = torch.Generator().manual_seed(round_)
    return {
        name: value + size * torch.randn(len(WEIGHTS), *value.shape, generator=generator, dtype=value.dtype)
        for name, value in server.items()
    }


def start(dtype: torch.dtype = torch.float64) -> Parameters:
    generator = torch.Generator().manual_seed(99)
    shapes = {"prompt": (2, 3), "other": (4,)}
    return {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in shapes.items()}


def stepped(step: ServerStep, server: Parameters, uploads: Parameters, weights: Sequence[int] = WEIGHTS) -> Parameters:
    aggregated = {**server, **weighted_average(uploads, torch.tensor(weights))}
    return step(server, aggregated, uploads)


# Oracles ---------------------------------------------------------------------------------------------------


def flowers(settings: ServerStepSettings) -> Any:
    """Flower's strategy with these settings."""
    strategies = pytest.importorskip("flwr.serverapp.strategy")
    if settings.name == "momentum":
        return strategies.FedAvgM(server_learning_rate=settings.lr, server_momentum=settings.momentum)
    named = {"adam": strategies.FedAdam, "yogi": strategies.FedYogi}
    return named[settings.name](eta=settings.lr, beta_1=settings.beta1, beta_2=settings.beta2, tau=settings.epsilon)


def flowers_next(strategy: Any, server: Parameters, uploads: Parameters, round_: int) -> Parameters:
    """What a strategy of Flower makes of the uploads of a round, counted from 1."""
    from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp.strategy import FedAvgM

    def record(params: Parameters) -> ArrayRecord:
        return ArrayRecord({name: Array(value.numpy()) for name, value in params.items()})

    arrays = record(server)
    own = arrays if isinstance(strategy, FedAvgM) else {name: value.numpy() for name, value in arrays.items()}
    strategy.current_arrays = own
    replies = []
    for client, weight in enumerate(WEIGHTS):
        metrics = MetricRecord({"num-examples": weight})
        content = RecordDict({"arrays": record({name: x[client] for name, x in uploads.items()}), "metrics": metrics})
        replies.append(SimpleNamespace(content=content, has_error=lambda: False))
    found, _ = strategy.aggregate_train(round_, replies)
    return {name: torch.from_numpy(np.array(value.numpy())) for name, value in found.items()}


@pytest.mark.parametrize("name", STEPS)
def test_flowers_strategies_make_the_same_steps_from_the_papers_start(name: str) -> None:
    step, theirs, server = ServerStep(STEPS[name]), flowers(STEPS[name]), start()
    theirs.v_t = {key: np.full(value.shape, step.settings.epsilon**2) for key, value in server.items()}
    for round_ in range(ROUNDS):
        uploads = uploads_of(round_, server)
        expected = flowers_next(theirs, server, uploads, 10**6)  # when it no longer corrects for the first rounds
        server = stepped(step, server, uploads)
        torch.testing.assert_close(server, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", STEPS)
def test_where_flowers_strategies_differ_is_what_is_documented(name: str) -> None:
    """Their second moment starts from 0, and FedAdam corrects its learning rate as if a round more had passed."""
    settings = STEPS[name]
    step, theirs, server = ServerStep(settings), flowers(settings), start()
    if name != "momentum":
        step.state = {f"second.{key}": torch.zeros_like(value) for key, value in server.items()}
    for round_ in range(1, ROUNDS + 1):
        uploads = uploads_of(round_, server)
        expected = flowers_next(theirs, server, uploads, round_)
        few_first, few_second = 1 - settings.beta1 ** (round_ + 1), 1 - settings.beta2 ** (round_ + 1)
        step.settings = replace(settings, lr=settings.lr * few_second**0.5 / few_first) if name == "adam" else settings
        server = stepped(step, server, uploads)
        torch.testing.assert_close(server, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_momentum_is_sgd_on_the_pseudo_gradient(momentum: float) -> None:
    step, server = ServerStep(ServerStepSettings("momentum", lr=0.3, momentum=momentum)), start()
    theirs = {name: value.clone().requires_grad_() for name, value in server.items()}
    optimizer = torch.optim.SGD(theirs.values(), lr=0.3, momentum=momentum)
    for round_ in range(ROUNDS):
        uploads = uploads_of(round_, server)
        for name, average in weighted_average(uploads, torch.tensor(WEIGHTS)).items():
            theirs[name].grad = server[name] - average  # a gradient points away from where clients go
        optimizer.step()
        server = stepped(step, server, uploads)
        torch.testing.assert_close(server, {k: v.detach() for k, v in theirs.items()}, rtol=0, atol=1e-13)


# Properties ------------------------------------------------------------------------------------------------

_NUMBERS = st.floats(-10, 10, width=32)
_SETTINGS = st.builds(
    ServerStepSettings,
    name=st.sampled_from(["average", "momentum", "adam", "yogi"]),
    lr=st.floats(1e-3, 2),
    momentum=st.floats(0, 0.99),
    beta1=st.floats(0, 0.99),
    beta2=st.floats(0, 0.999),
    epsilon=st.floats(1e-3, 1),
)


def _vectors(n: int) -> st.SearchStrategy[Tensor]:
    return st.lists(st.lists(_NUMBERS, min_size=5, max_size=5), min_size=n, max_size=n).map(
        lambda rows: torch.tensor(rows, dtype=torch.float32)
    )


@given(_vectors(6))
def test_momentum_0_with_learning_rate_1_is_the_average(x: Tensor) -> None:
    step = ServerStep(ServerStepSettings("momentum", lr=1.0, momentum=0.0))
    server = {"p": x[0]}
    for average in x[1:]:
        server = step(server, {"p": average}, ["p"])
        torch.testing.assert_close(server["p"], average, rtol=2**-24, atol=2**-48)  # float64 has 53 bits, 10 takes 4


@given(_SETTINGS, _vectors(4), st.permutations(range(4)))
def test_the_order_of_clients_does_not_matter(settings: ServerStepSettings, uploads: Tensor, order: list[int]) -> None:
    found = []
    for places in (list(range(4)), order):
        step, server = ServerStep(settings), {"p": torch.zeros(5, dtype=torch.float64)}
        for sent in (uploads.double(), uploads.double() / 2):
            server = stepped(step, server, {"p": sent[places]}, [WEIGHTS[place] for place in places])
        found.append(server["p"])
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)


@given(_SETTINGS, _vectors(5))
def test_a_step_in_float32_is_one_in_float64_rounded(settings: ServerStepSettings, x: Tensor) -> None:
    single, double = ServerStep(settings), ServerStep(settings)
    server = x[0]
    for average in x[1:]:
        wide = double({"p": server.double()}, {"p": average.double()}, ["p"])["p"]
        server = single({"p": server}, {"p": average}, ["p"])["p"]
        assert server.dtype == torch.float32
        assert torch.equal(server, wide.float())
    assert_same_bits(single.state, double.state)


@given(_SETTINGS, _vectors(8))
def test_what_is_remembered_stays_a_number(settings: ServerStepSettings, x: Tensor) -> None:
    step, server = ServerStep(settings), {"p": x[0]}
    for average in x[1:]:
        server = step(server, {"p": average}, ["p"])
        assert all(torch.isfinite(value).all() for value in (*server.values(), *step.state.values()))
        assert all((value >= 0).all() for name, value in step.state.items() if name.startswith("second"))


@pytest.mark.parametrize("name", ["adam", "yogi"])
def test_the_learning_rate_of_adam_and_yogi_is_how_far_a_steady_change_moves_a_number(name: str) -> None:
    step = ServerStep(ServerStepSettings(name, lr=0.02))  # type: ignore[arg-type]
    x = torch.zeros(2, dtype=torch.float64)
    for _ in range(1500):
        before = x
        x = step({"p": x}, {"p": x + torch.tensor([0.5, -2.0])}, ["p"])["p"]
    torch.testing.assert_close(x - before, torch.tensor([0.02, -0.02]).double(), rtol=0.02, atol=0)


# What is stepped, and what is left alone -------------------------------------------------------------------


def test_the_average_is_taken_as_it_is() -> None:
    step, aggregated = ServerStep(ServerStepSettings()), start(torch.float32)
    assert step(start(torch.float32), aggregated, aggregated) is aggregated
    assert step.state == {}


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


@pytest.mark.parametrize("method", ["fedotp", "promptfl", "promptfl-fedper", "pfedprompt"])
def test_a_round_of_the_simulator_goes_part_of_the_way(method: str) -> None:
    plain = simulator(method)
    before = plain.server.params
    plain.run_round()
    halved = simulator(method, make_settings(server={"name": "momentum", "lr": 0.5}))
    halved.run_round()
    for name, value in halved.server.params.items():
        assert (plain.server.params[name] - before[name]).abs().max() > 1e-3
        torch.testing.assert_close(value, (before[name] + plain.server.params[name]) / 2, rtol=0, atol=1e-7)
    assert set(halved.server.step.state) == {f"momentum.{name}" for name in halved.server.params}


# Checkpoints -----------------------------------------------------------------------------------------------


def saved(folder: Path, name: str, rounds: int = 2) -> Any:
    settings = make_settings(server={"name": name, "lr": 0.02})
    federation = simulator("fedotp", settings, kept=folder / "private.bin")
    for _ in range(rounds):
        federation.run_round()
    Checkpoint.write(folder / "checkpoint", federation, Progress(round=rounds))
    return federation


@pytest.mark.parametrize("name", ["average", *STEPS])
def test_a_checkpoint_brings_the_state_back_and_keeps_it_apart(name: str, tmp_path: Path) -> None:
    federation = saved(tmp_path, name)
    assert set(Checkpoint.read(tmp_path / "checkpoint").server) == {"shared"}
    other = simulator("fedotp", federation.settings, kept=tmp_path / "private.bin")
    Checkpoint.read(tmp_path / "checkpoint").restore(other)
    assert_same_bits(other.server.step.state, federation.server.step.state)
    federation.run_round()
    expected = state_of(federation)
    Checkpoint.read(tmp_path / "checkpoint").restore(other)  # the round has written rows: back to the checkpoint's
    other.run_round()
    assert_same_bits(state_of(other), expected)
    assert_same_bits(other.server.step.state, federation.server.step.state)


@pytest.mark.parametrize(("name", "other"), [("adam", "momentum"), ("momentum", "average"), ("momentum", "yogi")])
def test_the_state_of_another_step_is_refused(name: str, other: str, tmp_path: Path) -> None:
    saved(tmp_path, name)
    federation = simulator("fedotp", make_settings(server={"name": other}), kept=tmp_path / "private.bin")
    with pytest.raises(FedotpError, match=rf"another federation: its server's step .* server.name = '{other}'"):
        Checkpoint.read(tmp_path / "checkpoint").restore(federation)
    assert federation.server.step.state == {}


@pytest.mark.parametrize("forge", [Tensor.flatten, Tensor.float, Tensor.long])
def test_a_state_of_another_shape_or_type_is_refused(forge: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    federation = saved(tmp_path, "momentum")
    federation.server.step.state = {name: forge(value) for name, value in federation.server.step.state.items()}
    Checkpoint.write(tmp_path / "checkpoint", federation, Progress(round=2))
    with pytest.raises(FedotpError, match="belongs to another federation"):
        Checkpoint.read(tmp_path / "checkpoint").restore(federation)
