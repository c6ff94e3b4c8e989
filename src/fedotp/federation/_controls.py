"""Controls: what somebody would score who has learned nothing of what a method claims to learn.

Whatever is to be believed must be above them, on the same test images of the same clients. `judge` is for other
images: those that clients trained on.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedotp.federation._data import FederatedData, Images
from fedotp.federation._evaluation import LocalTester, Predictions
from fedotp.federation._metrics import Floats
from fedotp.federation._random import Ints
from fedotp.federation._settings import Settings
from fedotp.methods import Method, Task, ZeroShot

if TYPE_CHECKING:
    from fedotp.federation._simulator import Simulator

MAJORITY = "majority"
"""Every image is of the class most frequent in the client's training."""
ZERO_SHOT = "zero_shot"
"""Captions, which have learned nothing."""
GLOBAL_PART = "global_part"
"""What the server sends, alone."""
PERSONAL = "personal"
"""A client's own classifier."""
SHARED = "shared"
"""What the server sends to a newcomer, alone."""


def control_testers(method: Method, task: Task, data: FederatedData, settings: Settings) -> dict[str, LocalTester]:
    """Who tests the controls that predict; a method that is one of them, or nothing but its global part, has it not."""
    methods: dict[str, Method] = {} if method == ZeroShot() else {ZERO_SHOT: ZeroShot()}
    personal = bool(method.private(task)) or method.finetune_epochs != 0
    if personal and method.global_part is not None:
        methods[GLOBAL_PART] = method.global_part
    return {name: LocalTester(control, task, data, settings) for name, control in methods.items()}


def majority_accuracy(data: FederatedData, clients: Ints) -> Floats:
    """How often the class most frequent among a client's training images is that of its test images: (C,).

    Of classes equally frequent it is the first; `clients` (C,) have test images.
    """
    most = [np.bincount(data.train.labels[data.train.clients[i]], minlength=1).argmax() for i in clients]
    own = [data.test.labels[data.test.clients[i]] for i in clients]
    return np.array([np.mean(labels == label) for labels, label in zip(own, most, strict=True)], np.float64)


def accuracy_of(lines: Predictions, clients: Ints) -> Floats:
    """How often the predictions for the test images of `clients` (C,), who have some, are right: (C,)."""
    right = lines.label == lines.predicted
    return np.array([right[lines.client == client].mean() for client in clients], np.float64)


def judge(federation: "Simulator", clients: Ints, images: Images) -> dict[str, Predictions]:
    """What each model makes of the `images` of `clients` (C,): a line for each, ordered by client and row.

    Models are `PERSONAL`, `SHARED` where the method has a global part, and `ZERO_SHOT`, which has learned nothing.
    """
    data = replace(federation.data, test=images)

    def tester(method: Method) -> LocalTester:
        return LocalTester(method, federation.task, data, federation.settings)

    own = tester(federation.method)
    found = {PERSONAL: [own.predict(group, params) for group, params in federation.deployed(clients)]}
    others = {SHARED: federation.method.global_part, ZERO_SHOT: ZeroShot()}
    for name, method in others.items():
        if method is None:
            continue
        other = tester(method)
        found[name] = [
            other.predict(group, method.deployed(federation.newcomers(len(group)) if name == SHARED else {}, {}))
            for group in (clients[i : i + federation.group_size] for i in range(0, len(clients), federation.group_size))
        ]
    return {name: Predictions.join(parts).in_order() for name, parts in found.items()}
