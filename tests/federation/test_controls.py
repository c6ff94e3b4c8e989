"""Controls: what somebody scores who has learned nothing of what a method claims to learn."""

from collections import Counter

import numpy as np
import pytest
from toy_federation import make_data, simulator

from anchored import STRUCTURES
from fedotp.federation.testing import Evaluation, LocalTester
from fedotp.federation.testing._tests import _majority_accuracy as majority_accuracy


def test_the_majority_is_that_of_the_training_images() -> None:
    data = make_data()
    found = majority_accuracy(data, np.arange(5))
    for client in range(5):
        seen = Counter(data.train.labels[data.train.clients[client]].tolist())
        label = min(seen, key=lambda name: (-seen[name], name))
        own = data.test.labels[data.test.clients[client]].tolist()
        assert found[client] == pytest.approx(own.count(label) / len(own))


@pytest.mark.parametrize("method", STRUCTURES)
def test_controls_are_tested_on_the_clients_own_images(method: str) -> None:
    federation = simulator(method)
    if federation.learns:
        federation.run_round()
    clients = np.array([0, 2, 3])
    found = federation.controls(clients)
    captions = simulator("zeroshot").predict(clients)
    expected = {"majority": majority_accuracy(federation.data, clients)}
    if method != "zeroshot":
        expected["zero_shot"] = Evaluation.of(captions, 3, federation.domains).accuracy
    part = federation.method.global_part
    if part is not None and (federation.private_names or federation.method.finetune_epochs != 0):
        sent = federation.method.send(federation.server.params, None, len(clients))
        tester = LocalTester(part, federation.task, federation.data, federation.settings)
        lines = tester.predict(clients, part.deployed(sent, {}))
        expected["global"] = Evaluation.of(lines, 3, federation.domains).accuracy
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_what_is_nothing_but_its_global_part_is_no_control_of_itself() -> None:
    assert simulator("promptfl").controls(np.arange(2)).keys() == {"majority", "zero_shot"}
    assert simulator("fedotp").controls(np.arange(2)).keys() == {"majority", "zero_shot", "global"}
    assert simulator("coop").controls(np.arange(2)).keys() == {"majority", "zero_shot"}


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
