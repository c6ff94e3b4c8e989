"""What the classifiers of a federation make of images that are not the clients' test images: those they trained on."""

from dataclasses import replace

from fedotp.federation._data import Images
from fedotp.federation._evaluate import LocalTester, Predictions
from fedotp.federation._random import Ints
from fedotp.federation._simulator import Simulator
from fedotp.methods import Method, ZeroShot

PERSONAL = "personal"
"""A client's own classifier."""
SHARED = "shared"
"""What the server sends to a newcomer, alone."""
ZERO_SHOT = "zero_shot"
"""Captions, which nobody has taught anything."""


def judge(federation: Simulator, clients: Ints, images: Images) -> dict[str, Predictions]:
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
