"""What the authors' code does otherwise, restated: one optimizer for all, float16, who is tested."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from toy_federation import assert_same_bits, kept_rows, make_data, make_settings, make_task, simulator, state_of

from fedotp.federation import Checkpoint, Progress
from fedotp.federation.clients._local import LocalWork
from fedotp.methods import Batch, FedOTP
from fedotp.methods._method import weighted_average

LEAK = {"leaked_momentum": True}
SGD = {"lr": 0.05, "momentum": 0.9}


def test_momentum_goes_from_client_to_client_and_from_round_to_round() -> None:
    """Against one torch.optim.SGD that never hears that the client has changed."""
    task, data = make_task(torch.float64, authors=LEAK), make_data()
    settings = make_settings(optimizer=SGD, participation=0.6, compute={"precision": "float64"})
    federation = simulator(FedOTP(), settings, task=task, data=data)
    names = ("shared", "private")
    start = {**FedOTP().shared(task, 5), **FedOTP().private(task)}
    leaves = {name: start[name].clone().requires_grad_() for name in names}
    server, private = start["shared"].clone(), [start["private"].clone() for _ in data.names]
    one = torch.optim.SGD(leaves.values(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for round_ in range(2):
        sent, weights = [], []
        asked = settings.federation.sampled(np.arange(5), round_, settings.seed)
        for client in asked:
            with torch.no_grad():
                leaves["shared"].copy_(server)
                leaves["private"].copy_(private[client])
            work = LocalWork(np.array([client]), round_, 2, 0.05, 2 * round_)
            for step in federation.trainer._steps(work, None):
                crop = (work.crops_from + step.epochs[:, None]) % data.train.features.n_crops
                rows = data.train.rows(work.clients, step.places)
                image, labels = data.train.read(rows, crop, torch.device("cpu"), torch.float64)
                one.zero_grad()
                params = {name: leaf[None] for name, leaf in leaves.items()}
                FedOTP().loss(task, params, {}, Batch(image, labels)).sum().backward()
                one.step()
            private[client] = leaves["private"].detach().clone()
            sent.append(leaves["shared"].detach().clone())
            weights.append(len(data.train.clients[client]))
        server = sum(part * weight for part, weight in zip(sent, weights, strict=True)) / sum(weights)
        federation.run_round()
    torch.testing.assert_close(federation.server.params["shared"], server, rtol=0, atol=1e-10)
    torch.testing.assert_close(kept_rows(federation)["private"], torch.stack(private), rtol=0, atol=1e-10)
    fresh = simulator(FedOTP(), settings, task=make_task(torch.float64), data=data)
    for _ in range(2):
        fresh.run_round()
    assert float((fresh.server.params["shared"] - server).abs().max()) > 1e-4


def test_a_leaking_federation_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    settings = make_settings(optimizer=SGD, participation=0.6, dropout=0.3)
    make = partial(simulator, FedOTP(), settings, task=make_task(authors=LEAK))
    through, stopped = make(kept=tmp_path / "a"), make(kept=tmp_path / "b")
    for _ in range(2):
        through.run_round()
        stopped.run_round()
    stopped.save(tmp_path / "state", Progress(round=2))
    resumed = make(kept=tmp_path / "b")
    Checkpoint.read(tmp_path / "state").restore(resumed)
    for federation in (through, resumed):
        federation.run_round()
    assert_same_bits(state_of(through), state_of(resumed))


def test_what_is_learned_is_float16() -> None:
    settings = make_settings(optimizer={"reset": False})
    task = make_task(authors={"half_precision": True})
    federation = simulator(FedOTP(), settings, task=task)
    for _ in range(2):
        federation.run_round()
    for name, value in state_of(federation).items():
        if "steps" not in name:
            assert torch.equal(value, value.half().float()), name
    plain = simulator(FedOTP(), settings)
    plain.run_round()
    assert any(not torch.equal(value, value.half().float()) for value in state_of(plain).values())


def test_averages_are_added_up_in_float16() -> None:
    value = torch.randn(7, 3, 4, generator=torch.Generator().manual_seed(1)).half()
    weights = torch.tensor([3, 1, 10, 7, 5, 1, 2])
    total = np.zeros((3, 4), np.float16)
    for each, weight in zip(value.numpy(), weights.tolist(), strict=True):
        product = (each.astype(np.float64) * (weight / 29)).astype(np.float16)
        total = (total.astype(np.float64) + product.astype(np.float64)).astype(np.float16)
    found = weighted_average({"prompt": value}, weights)["prompt"]
    assert found.dtype == torch.float16
    np.testing.assert_allclose(found.float().numpy(), total.astype(np.float32), rtol=0, atol=1e-3)
    exact = weighted_average({"prompt": value.double()}, weights)["prompt"]
    assert not torch.equal(found.double(), exact)
    assert torch.allclose(found.double(), exact, atol=5e-3)


def test_a_penalty_without_gradient_is_none() -> None:
    detached = make_task(authors={"detached_proximal": True})
    runs = [simulator("promptfl-fedprox", task=detached), simulator("promptfl-fedprox"), simulator("promptfl")]
    reports = [[run.run_round() for _ in range(2)] for run in runs]
    assert_same_bits(state_of(runs[0]), state_of(runs[2]))
    assert not torch.equal(runs[1].server.params["prompt"], runs[2].server.params["prompt"])
    assert reports[0][1].mean_loss > reports[2][1].mean_loss  # it is in the loss that is told


def test_only_those_sampled_are_tested_in_the_end_too() -> None:
    task = make_task(authors={"evaluate_sampled": True})
    federation = simulator("promptfl", make_settings(participation=0.4), task=task)
    assert len(federation.evaluate()[0].clients) == 5  # nobody has been sampled yet
    for round_ in range(2):
        report = federation.run_round()
        assert round_ + 1 == report.round
        for everyone in (True, False):
            evaluation, _ = federation.evaluate(everyone=everyone)
            assert evaluation.clients.tolist() == report.sampled.tolist()


def test_a_schedule_may_be_longer_than_the_run() -> None:
    settings = make_settings(optimizer={"lr": 1.0, "schedule": "cosine", "warmup_rounds": 1})
    federation = simulator("promptfl", settings, task=make_task(authors={"schedule_rounds": 41}))
    found = []
    for federation.round in (0, 1, 21, 41, 60):
        found.append(federation.lr)
    np.testing.assert_allclose(found, [0.5, 1.0, 0.5, 0.0, 0.0], atol=1e-12)
