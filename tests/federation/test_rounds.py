"""Who takes part in a round, what the server makes of it, what travels, and clients that join later."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_federation import TRAIN, assert_same_bits, in_order, kept_rows, make_data, make_settings, simulator, state_of

from anchored import STRUCTURES
from fedotp._values import Words
from fedotp.errors import FedotpError
from fedotp.federation import RoundSettings
from fedotp.federation.clients._steps import local_steps, steps_per_epoch
from fedotp.methods import METHODS, FedOTP, Method, Need

EVERYONE = np.arange(len(TRAIN))

# Sampling --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("participation", "n", "k"), [(1.0, 5, 5), (0.5, 4, 2), (0.01, 5, 1), (0.1, 100, 10), (0.3, 5, 2)]
)
def test_a_share_of_the_clients_is_sampled_at_least_one(participation: float, n: int, k: int) -> None:
    settings = RoundSettings(participation=participation)
    members = np.arange(n) * 3
    rounds = [settings.sampled(members, round_, seed=1) for round_ in range(20)]
    for clients in rounds:
        assert len(clients) == k
        assert set(clients) <= set(members)
        assert (np.diff(clients) > 0).all()
    if k < n:
        assert len({tuple(clients) for clients in rounds}) > 1
        assert len(np.unique(np.concatenate(rounds))) > k
    np.testing.assert_array_equal(rounds[3], settings.sampled(members, 3, seed=1))  # no hidden state


def test_the_first_round_may_be_of_all_clients() -> None:
    federation = simulator("fedotp", make_settings(participation=0.2, first_round="all"))
    assert [len(federation.run_round().sampled) for _ in range(2)] == [5, 1]


def test_clients_drop_out_with_the_given_probability_and_keep_what_they_had() -> None:
    settings = RoundSettings(dropout=0.3)
    clients = np.arange(100)
    left = [len(settings.survivors(clients, round_, seed=0)) for round_ in range(100)]
    assert abs(np.mean(left) - 70) < 2  # standard error 0.46
    federation = simulator("fedotp", make_settings(dropout=0.5, seed=2))
    before = kept_rows(federation)["private"]
    report = federation.run_round()
    lost = np.setdiff1d(report.sampled, report.answered)
    assert 0 < len(lost) < 5
    after = kept_rows(federation)["private"]
    for client in EVERYONE:
        assert torch.equal(before[client], after[client]) == (client in lost)
    assert report.examples.tolist() == [TRAIN[i] for i in report.answered]
    one_way = federation.server.params["shared"].numel() * 4
    assert report.bytes_down == 5 * one_way
    assert report.bytes_up == len(report.answered) * one_way


def test_the_average_is_of_those_that_answered() -> None:
    """A round in which some fail is a round in which only the others were sampled."""
    federation = simulator("fedotp", make_settings(dropout=0.5, seed=2))
    answered = federation.run_round().answered
    other = simulator("fedotp", make_settings(seed=2))
    other.members = answered
    other.run_round()
    assert_same_bits(state_of(federation), state_of(other))


def test_a_round_with_too_few_answers_leaves_the_server_as_it_was() -> None:
    federation = simulator("fedotp", make_settings(min_clients=6, server={"name": "momentum"}))
    before = federation.server.params["shared"].clone()
    federation.run_round()
    assert torch.equal(federation.server.params["shared"], before)
    assert federation.server.step.state == {}
    enough = simulator("fedotp", make_settings(min_clients=5))
    enough.run_round()
    assert not torch.equal(enough.server.params["shared"], before)


def test_a_round_without_any_answer_is_survived() -> None:
    federation = simulator("fedotp", make_settings(participation=0.2, dropout=0.999999))
    before = state_of(federation)
    report = federation.run_round()
    assert len(report.answered) == 0
    assert np.isnan(report.mean_loss)
    assert report.bytes_up == 0
    assert_same_bits(before, state_of(federation))


# Batches ---------------------------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4).map(lambda x: sorted(x, reverse=True)),
    batch_size=st.integers(1, 5),
    epochs=st.integers(0, 3),
    drop_last=st.booleans(),
)
def test_every_epoch_shows_every_image_once(sizes: list[int], batch_size: int, epochs: int, drop_last: bool) -> None:
    generators = [np.random.default_rng(i) for i in range(len(sizes))]
    seen: list[dict[int, list[int]]] = [{} for _ in sizes]
    per_epoch = steps_per_epoch(np.array(sizes), batch_size, drop_last)
    n_steps = [0] * len(sizes)
    for step in local_steps(np.array(sizes), generators, epochs=epochs, batch_size=batch_size, drop_last=drop_last):
        assert step.places.shape[0] == len(step.epochs)
        for client, (places, epoch) in enumerate(zip(step.places, step.epochs, strict=True)):
            real = places[places >= 0].tolist()
            assert 1 <= len(real) <= batch_size
            assert places[: len(real)].tolist() == real  # padding comes last
            seen[client].setdefault(int(epoch), []).extend(real)
            n_steps[client] += 1
    for client, size in enumerate(sizes):
        whole = size // batch_size * batch_size
        shown = whole if drop_last and whole else size
        assert n_steps[client] == per_epoch[client] * epochs
        assert sorted(seen[client]) == list(range(epochs if size else 0))
        for places in seen[client].values():
            assert len(places) == len(set(places)) == shown
            assert set(places) <= set(range(size))


@pytest.mark.parametrize("method", STRUCTURES)
def test_tokens_that_are_not_needed_change_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def result() -> tuple[dict[str, torch.Tensor], np.ndarray]:
        federation = simulator(method)
        if federation.learns:
            federation.run_round()
        return state_of(federation), federation.predict().loss

    lean, loss = result()
    monkeypatch.setattr(METHODS[method], "needs", frozenset(Need))
    whole, whole_loss = result()
    assert_same_bits(lean, whole)
    assert np.array_equal(loss, whole_loss)


# Communication ---------------------------------------------------------------------------------------------

PROMPT = 3 * 32 * 4  # vectors, width, bytes


@pytest.mark.parametrize(
    ("method", "each_way"),
    [
        (FedOTP(n_shared=3, n_private=2), 3 * PROMPT),
        ("coop", 0),
        ("promptfl-fedper", PROMPT // 3),
        ("promptfl-fedamp", PROMPT),
        ("dp-fpl", PROMPT),
    ],
)
def test_bytes_down_and_up_are_those_of_the_prompts_that_travel(method: Method | str, each_way: int) -> None:
    report = simulator(method, make_settings(participation=0.6)).run_round()
    assert (report.bytes_down, report.bytes_up) == (3 * each_way, 3 * each_way)
    assert report.n_images == 2 * report.examples.sum()


# Clients that join later -----------------------------------------------------------------------------------


FIVE = ("a", "b-0", "b-1", "c", "d"), ("art", "photo", "photo", "sketch", None)


@pytest.mark.parametrize(
    ("holdout", "away"),
    [(("photo",), [1, 2]), (("c",), [3]), (("b-1", "art"), [0, 2]), (("photo", "b-0", "d"), [1, 2, 4])],
)
def test_held_out_clients_are_named_by_their_own_or_their_domains_name(holdout: Words, away: list[int]) -> None:
    for seed in (0, 1):
        assert RoundSettings(holdout=holdout).held_out(*FIVE, seed).tolist() == away


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"holdout_clients": 5}, "holdout_clients = 5: must be less than the number of clients, 5"),
        (
            {"holdout": ("art", "skecth")},
            r'holdout = \["art", "skecth"\]: must be names of clients or domains; did you mean "sketch"\? \(art, photo',
        ),
        ({"holdout": ("art", "photo", "c", "d")}, "these are all 5 clients, and at least one must train"),
        ({"holdout": ("art",), "holdout_clients": 2}, r"must be \[\] with holdout_clients = 2; .*one of the two$"),
    ],
)
def test_what_cannot_be_held_out_is_refused(settings: dict, why: str) -> None:
    with pytest.raises(FedotpError, match=why):
        RoundSettings(**settings).held_out(*FIVE, 0)


@pytest.mark.parametrize("method", STRUCTURES[1:])
def test_held_out_clients_never_train_and_never_reach_the_server(method: str) -> None:
    """Change all their images: nothing else changes by a bit."""
    settings = make_settings(holdout_clients=2)
    found = []
    for factor in (1, -5):
        data = make_data()
        federation = simulator(method, settings, data=data)
        for client in federation.held_out:
            rows = data.train.clients[client]
            data.train.features.tokens[:, rows] *= factor
            data.train.features.pooled[:, rows] *= factor
        reports = [federation.run_round() for _ in range(2)]
        for report in reports:
            assert not set(report.sampled) & set(federation.held_out)
        predictions = federation.predict()
        assert not set(predictions.client) & set(federation.held_out)
        found.append(state_of(federation) | {"loss": torch.from_numpy(predictions.loss)})
    assert_same_bits(found[0], found[1])


@pytest.mark.parametrize(("method", "reset"), [("fedotp", False), *((name, True) for name in STRUCTURES[1:])])
def test_joining_fits_private_parameters_only(method: str, reset: bool) -> None:
    settings = make_settings(holdout_clients=2, join_epochs=4, optimizer={"reset": reset})
    federation = simulator(method, settings)
    for _ in range(2):
        federation.run_round()
    server = {name: value.clone() for name, value in federation.server.params.items()}
    before = kept_rows(federation)
    predictions = federation.join(federation.held_out)
    assert set(predictions.client) == set(federation.held_out)
    assert_same_bits(federation.server.params, server)
    after = kept_rows(federation)
    members = np.setdiff1d(EVERYONE, federation.held_out)
    for name in federation.private_names:
        assert torch.equal(before[name][members], after[name][members])
        assert not torch.equal(before[name][federation.held_out], after[name][federation.held_out])
    # They predicted with what the server has and their own, nothing else was fitted.
    one, other = (in_order(p).loss for p in (predictions, federation.predict(federation.held_out)))
    np.testing.assert_allclose(one, other, atol=1e-4)
    again = federation.join(federation.held_out)  # from the start, not from the first time
    assert torch.equal(torch.from_numpy(again.loss), torch.from_numpy(predictions.loss))


def test_training_that_diverges_is_refused_by_name() -> None:
    federation = simulator("promptfl", make_settings(optimizer={"lr": 1e6, "weight_decay": 1e6}))
    with pytest.raises(FedotpError, match=r"training of client client \d diverged in round 1 .* lower optimizer.lr"):
        federation.run_round()
