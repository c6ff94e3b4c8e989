"""The membership probe catches what was learned by heart, and nothing where nothing was learned."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from audit.learned import by_heart
from federation.toy_federation import CLASSES, make_settings, simulator
from fedotp.audit import Probe
from fedotp.audit._probe import probe_federation
from fedotp.federation import Simulator
from fedotp.federation.testing import ZERO_SHOT


def trained(method: str, rounds: int) -> Simulator:
    hard = make_settings(rounds=rounds, local_epochs=10, batch_size=10, optimizer={"name": "adam"})
    federation = simulator(method, hard, data=by_heart((10,) * 3, (30,) * 3))
    for _ in range(rounds):
        federation.run_round()
    return federation


def areas(found: Probe) -> dict[tuple[str, str], tuple[float, float]]:
    return {(one.target, one.score): (one.separation.auc.low, one.separation.auc.high) for one in found.attacks}


def test_what_was_learned_by_heart_is_caught():
    shared = areas(probe_federation(trained("promptfl", 8)))
    assert shared["global", "loss"][0] > 0.5
    found = probe_federation(trained("coop", 4))
    personal = areas(found)
    assert personal["personal", "loss"][0] > 0.5
    assert personal["personal", "learned"][0] > 0.5
    assert not any(target == "global" for target, _ in personal)  # CoOp shares nothing
    assert found.is_fair


@pytest.mark.parametrize("method", ["promptfl", "fedotp"])
def test_untrained_prompts_reveal_nothing(method):
    found = probe_federation(trained(method, 0))
    for low, high in areas(found).values():
        assert low <= 0.5 <= high
    assert (found.members, found.others, found.round) == (30, 90, 0)


def test_area_is_that_of_the_losses_of_the_classifiers():
    """By hand: one client's images one by one through its own predictor."""
    from sklearn.metrics import roc_auc_score

    federation = trained("fedotp", 1)
    client = np.array([1])
    predictor = federation.predictor(client)
    losses, marks = [], []
    for images, mark in ((federation.data.train, 1), (federation.data.test, 0)):
        rows = images.clients[1][None]
        image, labels = images.read(rows, 0, torch.device("cpu"), torch.float32)
        losses += predictor.judge(image, labels)[1][0].tolist()
        marks += [mark] * rows.size
    attack = next(
        one for one in probe_federation(federation).attacks if (one.target, one.score) == ("personal", "loss")
    )
    assert attack.separation.by_client[1].value == pytest.approx(roc_auc_score(marks, [-loss for loss in losses]))


def test_images_that_differ_from_the_start_are_noticed():
    """Members that zero-shot CLIP is right about, others that it is wrong about."""
    federation = trained("promptfl", 0)
    sides = {}
    for part, shift in (("train", 0), ("test", 1)):
        images = getattr(federation.data, part)
        lines = federation.judge(np.arange(3), images)[ZERO_SHOT]
        labels = images.labels.copy()
        labels[lines.row] = (lines.predicted + shift) % len(CLASSES)
        sides[part] = replace(images, labels=labels)
    federation.data = replace(federation.data, **sides)
    assert not probe_federation(federation).is_fair
