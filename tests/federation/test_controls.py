"""Controls: what somebody scores who has learned nothing of what a method claims to learn."""

from collections import Counter

import numpy as np
import pytest
from toy_federation import make_data, make_settings, simulator

from anchored import STRUCTURES
from fedotp.federation import FederatedData, Ints
from fedotp.federation.testing import Evaluation, LocalTester


def majority_accuracy(data: FederatedData, clients: Ints) -> list[float]:
    """How often the most frequent class of a client's training images is that of its test images."""
    found = []
    for client in clients:
        seen = Counter(data.train.labels[data.train.clients[client]].tolist())
        label = min(seen, key=lambda name: (-seen[name], name))
        own = data.test.labels[data.test.clients[client]].tolist()
        found.append(own.count(label) / len(own))
    return found


@pytest.mark.parametrize("method", STRUCTURES)
def test_controls_are_tested_on_the_clients_own_images(method: str) -> None:
    federation = simulator(method)
    if federation.learns:
        federation.run_round()
    clients = np.array([0, 2, 3])
    found = federation.controls(clients)
    np.testing.assert_allclose(found.pop("majority").accuracy, majority_accuracy(federation.data, clients))
    part = federation.method.global_part
    sent = federation.method.send(federation.server.params, None, len(clients))
    expected = {}
    for suffix, prior in (("", 0.0), ("_prior", 1.0)):
        settings = make_settings(evaluation={"prior": prior})
        if method != "zeroshot":
            expected[f"zero_shot{suffix}"] = simulator("zeroshot", settings).predict(clients)
        if part is not None and (federation.private_names or federation.method.finetune_epochs != 0):
            tester = LocalTester(part, federation.task, federation.data, settings)
            expected[f"global{suffix}"] = tester.predict(clients, part.deployed(sent, {}))
    tester = LocalTester(federation.method, federation.task, federation.data, settings)
    expected["personal_prior"] = tester.predict(clients, federation.predictor(clients).params)
    assert found.keys() == expected.keys()
    for name, lines in expected.items():
        np.testing.assert_array_equal(found[name].accuracy, Evaluation.of(lines, 3, federation.domains).accuracy)


def test_what_is_nothing_but_its_global_part_is_no_control_of_itself() -> None:
    always = {"majority", "zero_shot", "zero_shot_prior"}
    assert simulator("promptfl").controls(np.arange(2)).keys() == always | {"personal_prior"}
    assert simulator("coop").controls(np.arange(2)).keys() == always | {"personal_prior"}
    with_prior = simulator("fedotp", make_settings(evaluation={"prior": 0.5}))
    assert with_prior.controls(np.arange(2)).keys() == always | {"global", "global_prior"}


def test_shuffled_labels_stay_with_their_client() -> None:
    data = make_data()
    found = data.with_shuffled_labels(3)
    assert not np.array_equal(found.train.labels, data.train.labels)
    for rows in data.train.clients:
        np.testing.assert_array_equal(np.sort(found.train.labels[rows]), np.sort(data.train.labels[rows]))
    assert found.test is data.test
    assert found.train.features is data.train.features
    np.testing.assert_array_equal(found.train.labels, data.with_shuffled_labels(3).train.labels)
    assert any(not np.array_equal(found.train.labels, data.with_shuffled_labels(k).train.labels) for k in range(3))
