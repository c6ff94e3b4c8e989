"""FedMGP: its draw against NumPy's, what is sent and what is kept, its groups."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from federation.toy_federation import kept_rows, make_settings, simulator
from fedotp.methods import Parameters
from fedotp.methods._fedmgp import FedMGP

D = 32


def groups_of(n_clients: int, groups: int, drawn: int) -> tuple[Parameters, Parameters]:
    """Parameters and what was received: groups, all different, and the last ones of the first client."""
    numbers = torch.arange(n_clients * groups * 2 * D, dtype=torch.float64).view(n_clients, groups, 2, D).sin()
    received = {"shared": numbers[:1, -drawn:].expand(n_clients, -1, -1, -1)}
    own = {"own": numbers[:, drawn:]} if groups > drawn else {}
    return {"shared": numbers[:, :drawn], **own}, received


def generators(n_clients: int) -> list[np.random.Generator]:
    return [np.random.default_rng(client) for client in range(n_clients)]


@pytest.mark.parametrize("tau", [0.2, 1.0])
def test_groups_are_drawn_as_numpy_draws_without_replacement(tau: float) -> None:
    """4,000 clients with the same groups against `Generator.choice` with the probabilities of the paper."""
    from scipy.stats import chi2_contingency

    n, method = 4000, FedMGP(groups=4, drawn=2, tau=tau)
    one, received = groups_of(1, 4, 2)
    params = {name: value.expand(n, -1, -1, -1) for name, value in one.items()}
    common = received["shared"][0].flatten(1)
    nearest = [
        max(float(torch.cosine_similarity(group, other, dim=0)) for other in common)
        for group in torch.cat([one["shared"], one["own"]], 1)[0].flatten(1)
    ]
    p = np.exp(np.array(nearest) / tau)
    order = method._order(params, {"shared": received["shared"].expand(n, -1, -1, -1)}, generators(n))[:, :2]
    rng = np.random.default_rng(0)
    theirs = Counter(tuple(rng.choice(4, size=2, replace=False, p=p / p.sum()).tolist()) for _ in range(n))
    ours = Counter(tuple(row) for row in order.tolist())
    pairs = sorted(theirs | ours)
    assert chi2_contingency([[counts[pair] for pair in pairs] for counts in (ours, theirs)]).pvalue > 0.01
    uniform = np.full(len(pairs), n / len(pairs))
    assert chi2_contingency([[ours[pair] for pair in pairs], uniform]).pvalue < 0.01  # it could have failed


@given(n_clients=st.integers(1, 4), groups=st.integers(1, 6), data=st.data())
def test_every_group_is_either_sent_or_kept(n_clients: int, groups: int, data: st.DataObject) -> None:
    drawn = data.draw(st.integers(1, groups))
    method = FedMGP(groups=groups, drawn=drawn)
    params, received = groups_of(n_clients, groups, drawn)
    sent = method.upload(params, received, generators(n_clients))
    kept = method.keep(params, received, generators(n_clients))
    assert sent.keys() == {"shared"}
    assert sent["shared"].shape[:2] == (n_clients, drawn)
    everything = torch.cat(list(params.values()), 1)
    again = torch.cat([sent["shared"], *kept.values()], 1)
    for mine, other in zip(everything, again, strict=True):
        assert {g.numpy().tobytes() for g in mine} == {g.numpy().tobytes() for g in other}
    if kept:  # who stays, stays where it was
        gone = {g.numpy().tobytes() for g in sent["shared"].flatten(0, 1)}
        for before, after in zip(params["own"].flatten(0, 1), kept["own"].flatten(0, 1), strict=True):
            assert torch.equal(before, after) != (before.numpy().tobytes() in gone)
    for client in range(n_clients):  # alone as among others
        rows = {name: value[client : client + 1] for name, value in params.items()}
        alone = method.upload(rows, {"shared": received["shared"][:1]}, [np.random.default_rng(client)])
        assert torch.equal(alone["shared"][0], sent["shared"][client])


def test_a_client_goes_on_with_what_it_did_not_draw_and_a_newcomer_with_all_it_trained() -> None:
    federation = simulator(FedMGP(), make_settings(holdout_clients=1))
    (newcomer,), members = federation.held_out, federation.members
    sent = []
    plain = federation.upload
    federation.upload = lambda clients, result: sent.append((result.params, plain(clients, result))) or sent[-1][1]  # type: ignore[method-assign]
    federation.run_round()
    (params, uploads), kept = sent[0], kept_rows(federation)["own"]
    for place, client in enumerate(members):
        trained = {g.numpy().tobytes() for name in ("shared", "own") for g in params[name][place]}
        found = [g.numpy().tobytes() for g in (*uploads["shared"][place], *kept[client])]
        assert set(found) == trained
        assert len(found) == 5
    federation.join(federation.held_out)
    joined = kept_rows(federation)["own"][newcomer]
    assert (joined - FedMGP().private(federation.task)["own"]).flatten(1).norm(dim=1).min() > 0  # each was trained
    assert torch.equal(federation.parameters(federation.held_out)["shared"][0], federation.server.params["shared"])
