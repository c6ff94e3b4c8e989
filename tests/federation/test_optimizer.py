"""C optimizers in one against torch.optim, client by client; learning rates."""

import math

import numpy as np
import pytest
import torch
from toy_federation import TRAIN, kept_rows, make_settings, make_task, simulator, state_of

from fedotp.federation import OptimizerSettings
from fedotp.federation._sampling import draws
from fedotp.federation.clients import LocalWork
from fedotp.federation.clients._steps import Optimizer, fresh_state, local_steps
from fedotp.methods import Batch

STEPS = (9, 6, 6, 1)  # falling, as the engine sorts them
SHAPES = {"shared": (2, 3), "private": (5,)}
SETTINGS = [
    OptimizerSettings("sgd", lr=0.1),
    OptimizerSettings("sgd", lr=0.1, momentum=0.0, weight_decay=0.0),
    OptimizerSettings("adamw", lr=0.1, weight_decay=0.3),
    OptimizerSettings("adam", lr=0.01, weight_decay=0.2, beta2=0.98, epsilon=1e-6),  # FedCLIP's
]


def _torch(settings: OptimizerSettings, params: list[torch.Tensor]) -> torch.optim.Optimizer:
    if settings.name == "sgd":
        return torch.optim.SGD(
            params, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay, foreach=False
        )
    adam = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    betas = (0.9, settings.beta2)
    return adam(params, settings.lr, betas, settings.epsilon, settings.weight_decay, foreach=False)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s.name}-{s.momentum}-{s.weight_decay}")
def test_every_client_steps_as_torch_optim_would(
    settings: OptimizerSettings, dtype: torch.dtype, tolerance: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    start = {name: torch.randn(len(STEPS), *shape, generator=generator, dtype=dtype) for name, shape in SHAPES.items()}
    gradients = {name: torch.randn(9, *value.shape, generator=generator, dtype=dtype) for name, value in start.items()}
    rates = [settings.lr * (1 - 0.05 * step) for step in range(9)]

    params = {name: value.clone() for name, value in start.items()}
    ours = Optimizer(settings, params, fresh_state(settings, params), torch.zeros(len(STEPS)))
    for step in range(9):
        active = sum(n > step for n in STEPS)
        ours.step({name: gradients[name][step, :active] for name in params}, rates[step])

    for client, n_steps in enumerate(STEPS):
        theirs = {name: value[client].clone().requires_grad_() for name, value in start.items()}
        optimizer = _torch(settings, list(theirs.values()))
        for step in range(n_steps):
            optimizer.param_groups[0]["lr"] = rates[step]
            for name, value in theirs.items():
                value.grad = gradients[name][step, client].clone()
            optimizer.step()
        for name, value in theirs.items():
            torch.testing.assert_close(params[name][client], value.detach(), rtol=0, atol=tolerance)
    assert ours.steps.tolist() == list(STEPS)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (OptimizerSettings(lr=2.0), [2, 2, 2, 2]),
        (OptimizerSettings(lr=2.0, schedule="linear"), [2, 1.5, 1, 0.5]),
        (OptimizerSettings(lr=2.0, schedule="cosine"), [1 + math.cos(math.pi * t / 4) for t in range(4)]),
        (OptimizerSettings(lr=2.0, schedule="linear", warmup_rounds=1), [1, 2, 4 / 3, 2 / 3]),
        (OptimizerSettings(lr=2.0, warmup_rounds=3), [0.5, 1, 1.5, 2]),
        (OptimizerSettings(lr=2.0, schedule="cosine", warmup_rounds=9), [0.2, 0.4, 0.6, 0.8]),
    ],
)
def test_learning_rates_of_four_rounds(settings: OptimizerSettings, expected: list[float]) -> None:
    assert [settings.rate_at(t, 4) for t in range(4)] == pytest.approx(expected)


@pytest.mark.parametrize(("name", "n_moments"), [("sgd", 1), ("adam", 2), ("adamw", 2)])
def test_without_reset_two_rounds_are_one_long_round(name: str, n_moments: int) -> None:
    """CoOp has no server: with its optimizer kept, training in two rounds is training on, at the scheduled rate."""
    optimizer = {"name": name, "reset": False, "lr": 0.02, "schedule": "linear"}
    settings = make_settings(rounds=2, optimizer=optimizer, compute={"precision": "float64"})
    task = make_task(torch.float64)
    federation = simulator("coop", settings, task=task)
    assert [federation.run_round().lr for _ in range(2)] == pytest.approx([0.02, 0.01])
    state = state_of(federation)
    moments = [key for key in state if "momentum." in key or "first." in key or "second." in key]
    assert len(moments) == n_moments
    assert all(state[key].abs().max() > 0 for key in moments)
    assert state["kept.optimizer.steps"].tolist() == [2 * 2 * -(-size // 4) for size in TRAIN]

    # The same by hand: one client, one optimizer of torch over the steps of both rounds.
    client = 2
    prompt = task.contexts(1).clone().requires_grad_()
    theirs = _torch(settings.optimizer, [prompt])
    for round_ in range(2):
        work = LocalWork(np.array([client]), round_, 2, 0.02)
        theirs.param_groups[0]["lr"] = (0.02, 0.01)[round_]
        for loss in _losses(federation, work, prompt):
            theirs.zero_grad()
            loss().backward()
            theirs.step()
    torch.testing.assert_close(kept_rows(federation)["prompt"][client], prompt.detach(), rtol=0, atol=1e-10)


def _losses(federation, work, prompt):  # type: ignore[no-untyped-def]
    """The loss of every step of one client, as a function to be called when its turn comes."""
    client = int(work.clients[0])
    images = federation.data.train
    generators = [draws(federation.settings.seed, "batches", work.round, client)]
    for step in local_steps(images.sizes(work.clients), generators, epochs=2, batch_size=4):
        rows = images.rows(work.clients, step.places)[:, step.places[0] >= 0]
        image, labels = images.read(rows, 0, torch.device("cpu"), torch.float64)
        yield lambda image=image, labels=labels: federation.method.loss(
            federation.task, {"prompt": prompt[None]}, {}, Batch(image, labels)
        ).sum()
