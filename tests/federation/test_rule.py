"""Robust rules against Flower's strategies and functions on random updates; where they differ; what a round does."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toy_federation import assert_same_bits, make_settings, simulator

from fedotp.errors import FedotpError
from fedotp.federation import ServerStepSettings
from fedotp.federation.server import Updates
from fedotp.federation.server._rule import Rule
from fedotp.methods import METHODS, Parameters
from fedotp.methods._method import weighted_average

RULES = ("bounded", "median", "trimmed", "krum", "multi-krum")
SHAPES = {"prompt": (2, 3), "other": (2,)}
NOT_AVERAGING = ("zeroshot", "coop", "promptfl-fedamp", "pfedmoap", "fedcof")
AVERAGING = [name for name in METHODS if name not in NOT_AVERAGING]


def settings(rule: str, **more: Any) -> ServerStepSettings:
    return ServerStepSettings(rule=rule, **more)


def start() -> Parameters:
    generator = torch.Generator().manual_seed(99)
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in SHAPES.items()}


def random_updates(n: int, seed: int, dtype: torch.dtype = torch.float64) -> Updates:
    rng = np.random.default_rng(seed)
    size = rng.lognormal(size=n)
    params = {
        name: torch.from_numpy(rng.normal(size=(n, *shape)) * size.reshape(-1, *[1] * len(shape))).to(dtype)
        for name, shape in SHAPES.items()
    }
    return Updates(torch.arange(n), params, torch.from_numpy(rng.integers(1, 50, n)))


def averaged(rule: ServerStepSettings, server: Parameters, sent: Updates) -> Parameters:
    """What the default method makes of updates under a rule."""
    found = Rule(rule)(server, sent)
    assert found is not None
    return weighted_average(found.params, found.weights)


# Flower's --------------------------------------------------------------------------------------------------


def flowers(strategy: Any, sent: Updates) -> Parameters:
    """What a strategy of Flower makes of the updates."""
    from types import SimpleNamespace

    from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

    replies = []
    for row, weight in enumerate(sent.weights.tolist()):
        arrays = ArrayRecord({name: Array(value[row].numpy()) for name, value in sent.params.items()})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": weight})})
        replies.append(SimpleNamespace(content=content, has_error=lambda: False, has_content=lambda: True))
    arrays, _ = strategy.aggregate_train(1, replies)
    return {name: torch.from_numpy(value.numpy().copy()) for name, value in arrays.items()}


few = examples(max_examples=40, deadline=None)
many = st.integers(1, 14)
seeds = st.integers(0, 10**6)


@few
@given(many, seeds)
def test_the_median_is_flowers(n: int, seed: int) -> None:
    strategies = pytest.importorskip("flwr.serverapp.strategy")
    sent = random_updates(n, seed)
    found = averaged(settings("median"), start(), sent)
    torch.testing.assert_close(found, flowers(strategies.FedMedian(), sent), rtol=1e-14, atol=1e-14)


@few
@given(many, st.floats(0.01, 0.49), seeds)
def test_the_trimmed_mean_is_flowers_where_it_trims_at_all(n: int, share: float, seed: int) -> None:
    """Flower rounds a share down to none; ours assumes at least one bad update, and needs three then."""
    strategies = pytest.importorskip("flwr.serverapp.strategy")
    sent = random_updates(n, seed)
    rule = Rule(settings("trimmed", malicious=share))
    if n < 3:
        assert rule(start(), sent) is None
        return
    beta = share if int(share * n) else (1 + 1e-9) / n
    found = averaged(rule.settings, start(), sent)
    torch.testing.assert_close(found, flowers(strategies.FedTrimmedAvg(beta=beta), sent), rtol=1e-13, atol=1e-13)


@few
@given(st.integers(3, 14), st.integers(0, 5), st.integers(0, 14), seeds)
def test_krum_and_multi_krum_are_flowers_weights_included(n: int, bad: int, kept: int, seed: int) -> None:
    strategies = pytest.importorskip("flwr.serverapp.strategy")
    assume(n >= 2 * bad + 3)
    sent = random_updates(n, seed)
    found = averaged(settings("krum", malicious=bad), start(), sent)
    expected = flowers(strategies.Krum(num_malicious_nodes=bad), sent)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
    found = averaged(settings("multi-krum", malicious=bad, kept=kept), start(), sent)
    strategy = strategies.MultiKrum(num_malicious_nodes=bad, num_nodes_to_select=kept or n - bad)
    torch.testing.assert_close(found, flowers(strategy, sent), rtol=1e-12, atol=1e-12)


@few
@given(many, st.floats(0.01, 5), seeds)
def test_bounded_updates_are_those_that_flower_clips(n: int, bound: float, seed: int) -> None:
    privacy = pytest.importorskip("flwr.supercore.differential_privacy")
    sent, server = random_updates(n, seed), start()
    found = Rule(settings("bounded", bound=bound))(server, sent)
    assert found is not None
    assert torch.equal(found.weights, sent.weights)
    for row in range(n):
        own = [value[row].numpy().copy() for value in sent.params.values()]
        privacy.compute_clip_model_update(own, [value.numpy() for value in server.values()], bound)
        torch.testing.assert_close([value[row].numpy() for value in found.params.values()], own, rtol=1e-12, atol=1e-12)


# Ties and edges --------------------------------------------------------------------------------------------


@few
@given(st.sampled_from([(3, 0), (5, 1), (6, 1), (7, 2), (9, 3)]), st.data())
def test_krum_takes_one_of_the_lowest_scores_where_many_are_equal(sizes: tuple[int, int], data: st.DataObject) -> None:
    """Small whole numbers have many equal distances; which of them is taken must not depend on anything else."""
    n, bad = sizes
    values = data.draw(hnp.arrays(np.float64, (n, 2), elements=st.integers(-2, 2).map(float)))
    apart = np.square(values[:, None] - values).sum(-1)
    scores = np.array([np.sort(np.delete(row, i))[: n - bad - 2].sum() for i, row in enumerate(apart)])
    found = Rule(settings("krum", malicious=bad))(*of_one_number(values))
    assert found is not None
    assert scores[found.clients].item() == pytest.approx(scores.min(), abs=1e-9)


def of_one_number(values: Any) -> tuple[Parameters, Updates]:
    """A server and updates whose only parameter has these values."""
    sent = torch.as_tensor(values, dtype=torch.float64)
    return {"prompt": torch.zeros_like(sent[0])}, Updates(
        torch.arange(len(sent)), {"prompt": sent}, torch.ones(len(sent))
    )


def test_krum_of_two_equal_scores_takes_the_first() -> None:
    found = Rule(settings("krum", malicious=1))(*of_one_number([[9.0], [1.0], [2.0], [1.5], [1.5]]))
    assert found is not None
    assert found.clients.tolist() == [3]


def test_the_bound_is_the_median_length_the_smaller_of_two() -> None:
    lengths = torch.tensor([1.0, 2.0, 5.0, 100.0])
    sent = Updates(torch.arange(4), {"prompt": lengths[:, None] * torch.tensor([0.6, 0.8])}, torch.ones(4))
    found = Rule(settings("bounded"))({"prompt": torch.zeros(2)}, sent)
    assert found is not None
    torch.testing.assert_close(found.params["prompt"].norm(dim=1), torch.tensor([1.0, 2.0, 2.0, 2.0]))
    assert torch.equal(found.params["prompt"][:2], sent.params["prompt"][:2])  # to the bit


@pytest.mark.parametrize("rule", RULES)
def test_unchanged_updates_stay_what_they_are(rule: str) -> None:
    """All alike: no length to divide by, no distance."""
    server = start()
    sent = Updates(
        torch.arange(5), {name: value.expand(5, *value.shape) for name, value in server.items()}, torch.ones(5)
    )
    torch.testing.assert_close(averaged(settings(rule), server, sent), server, rtol=1e-15, atol=0)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_updates_that_are_not_finite_are_left_out(rule: str, bad: float) -> None:
    sent, server = random_updates(7, 0), start()
    honest = sent.rows(torch.arange(6))
    params = {name: value.clone() for name, value in sent.params.items()}
    params["other"][6, 1] = bad
    found = averaged(settings(rule, malicious=1), server, sent._replace(params=params))
    assert_same_bits(found, averaged(settings(rule, malicious=1), server, honest))
    nothing = {name: torch.full_like(value, bad) for name, value in params.items()}
    assert Rule(settings(rule))(server, sent._replace(params=nothing)) is None


@few
@given(st.integers(5, 12), seeds, st.sampled_from(RULES))
def test_one_bad_update_can_do_little(n: int, seed: int, rule: str) -> None:
    """However far it is: the result stays among the honest ones, or bounded by their lengths."""
    sent, server = random_updates(n, seed), start()
    params = {name: value.clone() for name, value in sent.params.items()}
    for value in params.values():
        value[0] = 1e12
    found = averaged(settings(rule, malicious=1), server, sent._replace(params=params))
    honest = {name: value[1:] for name, value in sent.params.items()}
    if rule == "bounded":
        lengths = sum((value - server[name]).flatten(1).square().sum(1) for name, value in honest.items())
        moved = sum((found[name] - server[name]).square().sum() for name in found)
        assert moved <= lengths.max() * (1 + 1e-9)
    else:
        for name, value in found.items():
            assert (value >= honest[name].min(0).values - 1e-12).all()
            assert (value <= honest[name].max(0).values + 1e-12).all()


@pytest.mark.parametrize(
    ("malicious", "n", "expected"),
    [(0, 10, 0), (0.2, 10, 2), (0.2, 4, 1), (0.2, 14, 2), (0.49, 100, 49), (1, 10, 1), (3, 10, 3)],
)
def test_how_many_are_assumed_to_be_bad(malicious: float, n: int, expected: int) -> None:
    assert Rule(settings("krum", malicious=malicious)).n_bad(n) == expected


# Federations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "server", "participation", "why"),
    [
        *((name, {"rule": "median"}, 1.0, 'must be "average", as the server of') for name in NOT_AVERAGING),
        ("fedotp", {"rule": "krum", "malicious": 2}, 1.0, "needs at least 7 clients .* 2 of them may .* are 5"),
        ("promptfl", {"rule": "multi-krum"}, 0.6, "needs at least 5 clients .* but there are 3"),
    ],
)
def test_methods_that_do_not_average_and_too_few_clients_are_refused(
    method: str, server: dict, participation: float, why: str
) -> None:
    with pytest.raises(FedotpError, match=rf"server\.rule = .*{why}"):
        simulator(method, make_settings(server=server, participation=participation))


@pytest.mark.parametrize("method", AVERAGING)
def test_every_method_that_averages_sends_what_a_rule_can_compare(method: str) -> None:
    federation = simulator(method, make_settings(server={"rule": "median"}, local_epochs=1))
    shapes = {name: value.shape for name, value in federation.server.params.items()}
    clients = np.arange(3)
    ((_, result),) = federation.train(federation.round_work(clients))
    sent = federation.upload(clients, result)
    assert {name: value.shape[1:] for name, value in sent.items()}.items() <= shapes.items()
    federation.run_round()
    assert {name: value.shape for name, value in federation.server.params.items()} == shapes


@pytest.mark.parametrize("rule", RULES)
def test_a_round_is_the_rule_the_methods_average_and_the_step(rule: str) -> None:
    chosen = ServerStepSettings("momentum", lr=0.3, rule=rule)
    federation = simulator("fedotp", replace(make_settings(local_epochs=1), server=chosen))
    other = simulator("fedotp", replace(make_settings(local_epochs=1), server=chosen))
    clients = np.arange(5)
    ((_, result),) = other.train(other.round_work(clients))
    sent = Updates(
        torch.from_numpy(clients), other.upload(clients, result), torch.from_numpy(other.data.train.sizes(clients))
    )
    report = federation.run_round()
    expected = other.server.step(other.server.params, averaged(chosen, other.server.params, sent), sent.params)
    assert_same_bits(federation.server.params, expected)
    assert (report.averaged is not None) == ("krum" in rule)


def test_a_round_in_which_too_few_answer_changes_nothing() -> None:
    federation = simulator("fedotp", make_settings(server={"rule": "krum"}, dropout=0.5, rounds=4))
    seen = set()
    for _ in range(4):
        before = {name: value.clone() for name, value in federation.server.params.items()}
        report = federation.run_round()
        changed = any(not torch.equal(before[name], value) for name, value in federation.server.params.items())
        assert changed == (len(report.answered) >= 5)
        assert report.averaged is not None
        assert len(report.averaged) == changed
        seen.add(changed)
    assert False in seen
