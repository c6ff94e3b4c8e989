"""Every method lowers its own objective; nothing private is ever sent."""

import pytest
import torch
from toy_federation import TRAINED, kept_rows, make_data, make_settings, simulator

from anchored import STRUCTURES
from fedotp.federation.testing import Evaluation
from fedotp.methods import METHODS, FedOTP, Method, Parameters


@pytest.mark.parametrize("method", STRUCTURES[1:])
def test_every_method_lowers_its_objective_and_classifies_better(method: str) -> None:
    data = make_data(train=(8, 12, 10, 8), test=(8,) * 4)
    federation = simulator(method, make_settings(optimizer={"lr": 0.02}, batch_size=6), data=data)
    before = federation.predict()
    losses = [federation.run_round().mean_loss for _ in range(5)]  # with the penalty, where there is one
    after = federation.predict()
    assert losses[-1] < 0.5 * losses[0]
    assert after.loss.mean() < 0.7 * before.loss.mean()
    accuracy = [Evaluation.of(p, 3, data.domains).mean for p in (before, after)]
    assert accuracy[1] > max(0.7, accuracy[0] - 1e-9)


# Privacy ---------------------------------------------------------------------------------------------------

# What the servers get of a client's own: these methods say so.
# What a personal ridge keeps are the very sums that it has sent.
PUBLISHED = {"promptfl-fedamp": {"prompt"}, "fedmgp": {"own"}, "pfedmoap": {"own"}}
VARIANTS = [
    *(METHODS[name]() for name in TRAINED if name != "personal-ridge"),
    FedOTP(n_shared=2, n_private=3),
    FedOTP(n_shared=0, n_private=1),
]


def pieces(value: torch.Tensor) -> set[bytes]:
    """The context vectors of a tensor (..., d), as bytes."""
    return {row.numpy().tobytes() for row in value.detach().cpu().reshape(-1, value.shape[-1])}


@pytest.mark.parametrize("method", VARIANTS, ids=lambda m: f"{m.name}-{getattr(m, 'n_shared', '')}")
def test_nothing_private_is_ever_sent(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and values: no context vector that a client keeps, before or after a round, is in what the server gets."""
    sent: list[Parameters] = []
    plain = type(method).aggregate

    def aggregate(self, server, clients, uploads, weights):  # type: ignore[no-untyped-def]
        sent.append(uploads)
        return plain(self, server, clients, uploads, weights)

    monkeypatch.setattr(type(method), "aggregate", aggregate)
    federation = simulator(method, make_settings(optimizer={"reset": False}, participation=0.8))
    secret: set[bytes] = set()
    for _ in range(3):
        federation.run_round()
        rows = kept_rows(federation)
        for name in federation.private_names - method.publishes:
            secret |= pieces(rows[name])
        secret |= {p for name, value in rows.items() if "momentum." in name for p in pieces(value) if any(p)}
    assert len(sent) == (3 if federation.server.params else 0)
    published = federation.private_names & method.publishes
    for uploads in sent:
        assert not set(uploads) & (federation.private_names - published)
        assert not any(name.startswith("optimizer") for name in uploads)
        for value in uploads.values():
            assert not pieces(value) & secret
    for value in federation.server.params.values():
        if value.dim() > 1:
            assert not pieces(value) & secret
    assert published == PUBLISHED.get(method.name, set())
    assert secret or not federation.private_names - published
