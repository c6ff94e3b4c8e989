"""Attacks restated: who attacks, what is sent, what is trained on, and how success is counted."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from toy_federation import CLASSES, assert_same_bits, make_data, make_settings, make_task, state_of

from fedotp.errors import FedotpError, SettingError
from fedotp.federation import AttackSettings, Backdoor, FederatedData, HeldFeatures, Images, Settings, Simulator
from fedotp.federation._sampling import draws, order
from fedotp.methods import METHODS
from fedotp.methods._method import weighted_average

TRAIN = (7, 3, 10, 5, 4, 6)
UPDATES = ("sign-flip", "scaled", "colluding")


def under(attack: AttackSettings, **federation: Any) -> Settings:
    return replace(make_settings(local_epochs=1, **federation), attack=attack)


def shifted(features: HeldFeatures) -> HeldFeatures:
    """What stands for painted images."""
    return HeldFeatures(features.pooled.flip(-1), features.tokens.flip(-1))


def make_backdoor(attack: AttackSettings, data: FederatedData) -> Backdoor:
    train, test = data.train.features, data.test.features
    assert isinstance(train, HeldFeatures)
    assert isinstance(test, HeldFeatures)
    other, seen = (shifted(train), shifted(test)) if attack.name == "backdoor" else (train, test)
    both = HeldFeatures(torch.cat([train.pooled, other.pooled], 1), torch.cat([train.tokens, other.tokens], 1))
    labels = np.concatenate([data.train.labels, attack.labels(CLASSES, data.train.labels)[0]])
    return Backdoor(both, labels, seen, *attack.labels(CLASSES, data.test.labels))


def attacked(attack: AttackSettings, method: str = "fedotp", **federation: Any) -> Simulator:
    data = make_data(TRAIN, TRAIN)
    backdoor = make_backdoor(attack, data) if attack.is_on_data else None
    return Simulator(METHODS[method](), make_task(), data, under(attack, **federation), backdoor=backdoor)


def uploads(federation: Simulator) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """What all clients send if nobody meddles with it, and their numbers of images."""
    clients = np.arange(len(TRAIN))
    ((_, result),) = federation.train(federation.round_work(clients))
    return federation.upload(clients, result), torch.tensor(TRAIN)


# Who ---------------------------------------------------------------------------------------------------------


def test_attackers_are_drawn_from_those_that_train_and_a_larger_share_has_the_smaller() -> None:
    few, more = (attacked(AttackSettings("scaled", share=share), holdout_clients=1, seed=3) for share in (0.2, 0.6))
    assert len(few.attack.clients) == 1
    assert len(more.attack.clients) == 3
    assert set(few.attack.clients) < set(more.attack.clients)
    assert not set(more.held_out) & set(more.attack.clients)
    drawn = {tuple(attacked(AttackSettings("scaled", share=0.4), seed=seed).attack.clients) for seed in range(5)}
    assert len(drawn) > 1


def test_attackers_are_not_evaluated_and_are_named() -> None:
    federation = attacked(AttackSettings("scaled", share=0.34))
    evaluation, predictions = federation.evaluate()
    assert evaluation.clients.tolist() == federation.honest.tolist()
    assert not np.isin(predictions.client, federation.attack.clients).any()
    assert federation.facts()["malicious"] == [f"client {i}" for i in federation.attack.clients]
    drawn = replace(federation.settings, evaluation=replace(federation.settings.evaluation, clients=3))
    some = Simulator(METHODS["fedotp"](), make_task(), make_data(TRAIN, TRAIN), drawn)
    assert not np.isin(some.drawn_for_evaluation(), some.attack.clients).any()


# What is sent ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("scale", [0.0, 2.5])
def test_what_attackers_send(name: Any, scale: float) -> None:
    settings = AttackSettings(name, share=0.34, scale=scale)
    federation, other = attacked(settings), attacked(AttackSettings())
    sent, weights = uploads(other)
    bad = federation.attack.clients
    assert len(bad) == 2
    factor = scale or {"sign-flip": 1.0, "scaled": 10.0, "colluding": 1.5}[name]
    for key, value in sent.items():
        own, start = value.numpy().astype(np.float64), other.server.params[key].numpy().astype(np.float64)
        honest = np.delete(own, bad, axis=0)
        for client in bad:
            if name == "colluding":
                forged = honest.mean(0) - factor * honest.std(0)
            else:
                forged = start + (-factor if name == "sign-flip" else factor) * (own[client] - start)
            own[client] = forged
        sent[key] = torch.from_numpy(own.astype(np.float32))
    federation.run_round()
    torch.testing.assert_close(federation.server.params, weighted_average(sent, weights), rtol=1e-6, atol=1e-6)


def test_colluders_without_an_honest_client_send_what_they_learned() -> None:
    federation = attacked(AttackSettings("colluding", share=0.34))
    sent, _ = uploads(federation)
    bad = federation.attack.clients
    alone = {name: value[bad] for name, value in sent.items()}
    assert_same_bits(federation.attack.on_updates(federation.server.params, bad, alone), alone)


# What is trained on ------------------------------------------------------------------------------------------


def assert_trained_on(images: Images, federation: Simulator) -> None:
    """Two rounds are, to the bit, those of honest clients that have these training images."""
    data = replace(make_data(TRAIN, TRAIN), train=images)
    honest = under(AttackSettings(), seed=federation.settings.seed)
    restated = Simulator(METHODS["fedotp"](), make_task(), data, honest)
    for _ in range(2):
        federation.run_round()
        restated.run_round()
    assert_same_bits(state_of(federation), state_of(restated))


@pytest.mark.parametrize("source", ["", "car"])
def test_flipped_labels_are_those_of_data_labelled_otherwise(source: str) -> None:
    settings = AttackSettings("label-flip", share=0.34, target="egyptian mau", source=source)
    federation = attacked(settings)
    data = make_data(TRAIN, TRAIN)
    labels = data.train.labels.copy()
    for client in federation.attack.clients:
        for row in data.train.clients[client]:
            if not source or CLASSES[labels[row]] == source:
                labels[row] = CLASSES.index("egyptian mau")
    assert (labels != data.train.labels).any()
    assert_trained_on(replace(data.train, labels=labels), federation)


def test_a_backdoor_is_trained_on_painted_images_labelled_as_the_target() -> None:
    federation = attacked(AttackSettings("backdoor", share=0.34, target="car", poisoned=0.4), seed=2)
    data = make_data(TRAIN, TRAIN)
    assert isinstance(data.train.features, HeldFeatures)
    pooled, tokens = data.train.features.pooled.clone(), data.train.features.tokens.clone()
    painted, labels = shifted(data.train.features), data.train.labels.copy()
    for client in federation.attack.clients:
        own = data.train.clients[client]
        rows = own[order(draws(2, "poison", 0, int(client)), len(own))[: max(1, round(0.4 * len(own)))]]
        pooled[:, rows], tokens[:, rows] = painted.pooled[:, rows], painted.tokens[:, rows]
        labels[rows] = CLASSES.index("car")
    assert_trained_on(Images(HeldFeatures(pooled, tokens), labels, data.train.clients), federation)


# Success -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "source"), [("label-flip", ""), ("label-flip", "car"), ("backdoor", "")])
def test_success_is_the_share_of_other_images_taken_for_the_target(name: Any, source: str) -> None:
    settings = AttackSettings(name, share=0.34, target="cat", source=source, scale=3.0)
    federation = attacked(settings, method="promptfl")
    federation.run_round()
    (view,) = federation.see()
    assert (view.view, view.model) == ("attack success", "personal")
    data = make_data(TRAIN, TRAIN)
    assert isinstance(data.test.features, HeldFeatures)
    seen = shifted(data.test.features) if name == "backdoor" else data.test.features
    other = replace(data, test=replace(data.test, features=seen))
    lines = Simulator(METHODS["promptfl"](), make_task(), other, under(AttackSettings()))
    lines.server.params = federation.server.params
    predicted = lines.predict()
    for place, client in enumerate(view.evaluation.clients):
        wanted = [CLASSES.index(source)] if source else [1, 2]
        mine = (predicted.client == client) & np.isin(predicted.label, wanted)
        assert view.evaluation.n[place] == mine.sum()
        assert view.evaluation.accuracy[place] == pytest.approx((predicted.predicted[mine] == 0).mean())
    assert not np.isin(view.evaluation.clients, federation.attack.clients).any()


# Refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["zeroshot", "coop", "promptfl-fedamp", "pfedmoap"])
def test_methods_without_an_average_and_attacks_without_images_are_refused(method: str) -> None:
    with pytest.raises(FedotpError, match=r'attack\.name = "scaled": must be "none", as the server of'):
        attacked(AttackSettings("scaled"), method)
    with pytest.raises(FedotpError, match="needs the images of a `backdoor`"):
        Simulator(METHODS["fedotp"](), make_task(), make_data(), under(AttackSettings("backdoor")))


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("share", 0.0, r"attack\.share = 0\.0: must be in \(0, 1\]"),
        ("share", 1.0, r"attack\.share = 1\.0: must be smaller, so that at least one of 6 clients is honest"),
        ("scale", -1.0, r"attack\.scale"),
        ("target", "dog", r"attack\.target = 'dog': must be one of the classes: cat, egyptian mau, car"),
        ("source", "dog", r"attack\.source = 'dog': must be one of the classes"),
        ("source", "cat", r"attack\.source = 'cat': must be a different class from attack\.target"),
    ],
)
def test_what_is_refused(key: str, value: Any, why: str) -> None:
    with pytest.raises(SettingError, match=why):
        attacked(AttackSettings(**{"name": "label-flip", key: value}))
