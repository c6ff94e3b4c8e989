"""A membership-inference probe: the loss of training images against that of test images of the same client.

Two attacks, which require only the classifier and CLIP: by the loss, and by the loss of zero-shot CLIP minus that of
the classifier. Stronger attacks exist, so a negative result is no proof of privacy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedotp.audit._membership import Allowed, Separation, separate
from fedotp.errors import FedotpError
from fedotp.federation import Simulator
from fedotp.federation.testing import ZERO_SHOT
from fedotp.runs.one import restore
from fedotp.runs.watch import Observer

Floats = NDArray[np.float64]
LOSS, LEARNED = "loss", "learned"
"""The attacks: by the loss, and by the loss of zero-shot CLIP minus that of the classifier."""
_LEAST = 8  # images of either kind, over all clients: with fewer, intervals are meaningless


@dataclass(frozen=True)
class Attack:
    """The result of one attack (`LOSS`, `LEARNED`) on one `target` ("global", "personal")."""

    target: str
    score: str
    separation: Separation


@dataclass(frozen=True)
class Probe:
    """The results of the attacks, with zero-shot CLIP, which was trained on none of the images, as a control.

    The attacks' intervals hold simultaneously with `confidence`, over all clients or for one client. `allowed` limits
    any attack on covered prompts: the shared one, and with `privacy.private` the clients' own.
    """

    clients: tuple[str, ...]
    members: int
    others: int
    round: int
    attacks: tuple[Attack, ...]
    control: Separation
    confidence: float
    allowed: Allowed | None = None

    @property
    def is_fair(self) -> bool:
        """True if zero-shot CLIP cannot find members; otherwise members and others differ in more than membership."""
        return self.control.auc.low <= 0.5 <= self.control.auc.high

    def as_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {**asdict(self), "fair": self.is_fair}


Losses = Mapping[str, Sequence[Floats]]
"""Losses of each client's images, by model."""


def probe_run(
    path: str | Path, changes: Sequence[str] = (), *, confidence: float = 0.95, observer: Observer | None = None
) -> Probe:
    """Probe the global and the personal classifiers of a run with the images of its data set.

    Training images are preprocessed like test images, uncropped. `changes` are overrides like "compute.device=cpu".
    """
    plain = ["data.crops=0", "evaluation.views=personal", *changes]
    _, federation = restore(path, plain, observer=observer)
    return probe_federation(federation, confidence=confidence)


def probe_federation(federation: Simulator, *, confidence: float = 0.95) -> Probe:
    """Probe the global classifier of a federation and those of its participating clients."""
    clients = federation.members
    members, others = (
        {
            name: [lines.loss[lines.client == client] for client in clients]
            for name, lines in federation.judge(clients, images).items()
        }
        for images in (federation.data.train, federation.data.test)
    )
    n_members, n_others = (sum(len(part) for part in side[ZERO_SHOT]) for side in (members, others))
    if min(n_members, n_others) < _LEAST:
        raise FedotpError(
            f"a probe requires at least {_LEAST} training and {_LEAST} test images, got {n_members} and {n_others}; "
            "choose a run whose clients have more images"
        )
    tried = [(target, score) for target in members if target != ZERO_SHOT for score in (LOSS, LEARNED)]
    each = 1 - (1 - confidence) / len(tried)  # so that all intervals together hold with `confidence`
    attacks = [Attack(*what, _separation(members, others, *what, each)) for what in tried]
    control = _separation(members, others, ZERO_SHOT, LOSS, each)
    allowed, spent = None, federation.facts().get("privacy", {})
    if "epsilon" in spent:
        allowed = Allowed.by(spent["epsilon"], spent["delta"], tuple(control.tpr))
    names = tuple(federation.names[client] for client in clients)
    return Probe(names, n_members, n_others, federation.round, tuple(attacks), control, confidence, allowed)


def _separation(members: Losses, others: Losses, target: str, score: str, confidence: float) -> Separation:
    own, other = (_scores(losses, target, score) for losses in (members, others))
    found = separate(list(zip(own, other, strict=True)), confidence=confidence)
    if found is None:
        raise FedotpError("cannot compare losses: no client has both training and test images")
    return found


def _scores(losses: Losses, target: str, score: str) -> list[Floats]:
    """Return each client's scores, high for images that look like members."""
    if score == LOSS:
        return [-own for own in losses[target]]
    return [before - own for before, own in zip(losses[ZERO_SHOT], losses[target], strict=True)]
