"""Clients that have no part in a federation: it is the one of the others, to the bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from toy_federation import TRAIN, assert_same_bits, in_order, kept_rows, make_data, make_settings, simulator

from anchored import STRUCTURES
from fedotp.errors import FedotpError
from fedotp.federation import FederatedData, Images, RoundSettings, Simulator

NAMES = tuple(f"client {i}" for i in range(len(TRAIN)))
HERE = [0, 2, 4]
AWAY = (NAMES[1], NAMES[3])
VIEWS = ("personal", "global", "base", "neighbours")


def others_alone(data: FederatedData) -> FederatedData:
    """The oracle: a federation of three that never hears of the two others; each draws by the number it had."""

    def rows(images: Images) -> Images:
        return replace(images, clients=tuple(images.clients[i] for i in HERE))

    return replace(
        data,
        names=tuple(NAMES[i] for i in HERE),
        domains=tuple(data.domains[i] for i in HERE),
        train=rows(data.train),
        test=rows(data.test),
        numbers=tuple(HERE),
    )


def state(federation: Simulator, clients: list[int]) -> dict[str, torch.Tensor]:
    """What the server and `clients` have; some servers have a row for each client."""
    at = torch.tensor(clients)
    server = {
        name: value[at] if name in ("prompts", "pool", "sent") else value
        for name, value in federation.server.params.items()
    }
    return server | {f"kept.{name}": value[at] for name, value in kept_rows(federation).items()}


@pytest.mark.parametrize("name", STRUCTURES[1:])
def test_without_some_a_federation_is_that_of_the_others(name: str) -> None:
    data = make_data()
    chance = {"participation": 0.7, "local_epochs": 1, "optimizer": {"reset": False}, "seed": 3}
    without = simulator(name, make_settings(**chance, without=AWAY), data=data)
    alone = simulator(name, make_settings(**chance), data=others_alone(data))
    for _ in range(2):
        one, other = without.run_round(), alone.run_round()
        np.testing.assert_array_equal(one.answered, np.array(HERE)[other.answered])
        np.testing.assert_array_equal(one.loss, other.loss)
    assert_same_bits(state(without, HERE), state(alone, [0, 1, 2]))
    assert (without.kept.slot[[1, 3]] == -1).all()
    left, right = in_order(without.evaluate()[1]), in_order(alone.evaluate()[1])
    np.testing.assert_array_equal(left.client, np.array(HERE)[right.client])
    for column in ("row", "label", "predicted", "loss"):
        np.testing.assert_array_equal(getattr(left, column), getattr(right, column))


def test_their_test_images_are_shown_to_nobody_else() -> None:
    """Neither to the global part nor to others: whoever could not see them before does not now."""
    data = make_data()
    shown = {}
    for without in ((), AWAY):
        federation = simulator("fedotp", make_settings(evaluation={"views": VIEWS}, without=without), data=data)
        shown[without] = {(view.view, view.model): view for view in federation.see()}
        assert {*federation.evaluate()[0].clients} == ({0, 1, 2, 3, 4} if not without else {*HERE})
    theirs = sum(len(data.test.clients[i]) for i in (1, 3))
    for view in (("global", "global"), ("base", "personal")):
        assert shown[()][view].images - shown[AWAY][view].images == theirs


def test_an_image_that_somebody_else_has_too_is_still_shown() -> None:
    data = make_data()
    shared = data.test.clients[1][:1]
    rows = tuple(np.union1d(own, shared) if i == 0 else own for i, own in enumerate(data.test.clients))
    data = replace(data, test=replace(data.test, clients=rows))
    left = data.without(np.array([1]))
    np.testing.assert_array_equal(left.withheld, data.test.clients[1][1:])
    assert not len(left.test.clients[1])
    assert not len(left.train.clients[1])


def test_who_is_held_out_is_drawn_from_those_who_are_there() -> None:
    rounds = RoundSettings(holdout_clients=1, without=AWAY)
    assert rounds.absent(NAMES).tolist() == [1, 3]
    held = {int(client) for seed in range(20) for client in rounds.held_out(NAMES, [None] * len(NAMES), seed)}
    assert held == {*HERE}


def test_unknown_names_and_nobody_left_are_refused() -> None:
    with pytest.raises(FedotpError, match=r'federation.without = \["client 9"\].*did you mean "client [0-9]"'):
        simulator("fedotp", make_settings(without=("client 9",)))
    with pytest.raises(FedotpError, match="fewer names: these are all"):
        simulator("fedotp", make_settings(without=NAMES))
    with pytest.raises(FedotpError, match=r"federation.holdout = .*fewer names: these are all"):
        simulator("fedotp", make_settings(without=NAMES[1:], holdout=NAMES[:1]))
