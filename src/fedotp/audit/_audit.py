"""One run with canaries, and the lower bound on epsilon that it gives.

In private runs, canaries are additional gradients (or sites): the strongest attack, on every release (see
`fedotp.federation.Canaries`). In any run they can be mislabelled training images, each included by the toss of a coin;
two scores measure how well their labels were learned.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedotp._values import require, require_from
from fedotp.audit._bound import Bools, Bound, Floats, epsilon_from_below
from fedotp.config import Config
from fedotp.errors import FedotpError, SettingError
from fedotp.federation import FederatedData, Images, Ints, Settings, Simulator, draws
from fedotp.federation.testing import PERSONAL, ZERO_SHOT
from fedotp.methods import Method, Task
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import prepare
from fedotp.runs.watch import Observer

GRADIENTS, IMAGES = "gradients", "images"
CANARIES = 500  # default number
RELEASES = "releases"
_LEAST = 10
_MOST = 100_000


@dataclass(frozen=True)
class Audit:
    """The lower bounds on epsilon from one run with canaries.

    Attributes:
        unit: the protected unit: "none", "example", "group" or "site".
        kind: the kind of canaries: "gradients" (with unit "site" updates of sites) or "images".
        upper: the accountant's epsilon; None without a guarantee.
        bounds: lower bounds by target: all "releases", the "global" prompt, the "personal" classifiers.
        rounds: number of rounds of the audited run.
        covered: True if the guarantee covers the clients' own classifiers.
    """

    unit: str
    kind: str
    upper: float | None
    bounds: dict[str, Bound]
    rounds: int
    covered: bool = False

    @property
    def lower(self) -> float:
        """The largest lower bound on a target that the guarantee covers; without a guarantee, on any target."""
        everything = self.covered or self.upper is None
        names = [name for name in self.bounds if everything or name != PERSONAL]
        return max((self.bounds[name].epsilon for name in names), default=0.0)

    @property
    def is_broken(self) -> bool:
        """True if the guarantee is refuted."""
        return self.upper is not None and self.lower > self.upper

    def as_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {**asdict(self), "lower": self.lower, "broken": self.is_broken}


def audit(
    config: Config,
    *,
    canaries: int = CANARIES,
    kind: str | None = None,
    confidence: float = 0.95,
    like: RunDirectory | None = None,
    observer: Observer | None = None,
) -> Audit:
    """Run the federation that `config` describes once, with canaries; its prompts are discarded.

    `kind` is "gradients" or "images", by default what fits `config`. `like` is a run whose partition is reused.
    """
    if like is not None and like.is_deployed:
        raise FedotpError(f"{like.path} is a run of real sites, whose images are not available; audit a simulation")
    prepared = prepare(config, observer, like)
    watcher, rounds = observer or Observer(), config.federation
    n_images = int(rounds.participation * rounds.local_epochs * sum(map(len, prepared.data.train.clients)))
    watcher.on_start(Path("audit"), config, round_=0, images_per_round=n_images)
    return audit_federation(
        config.method,
        prepared.task,
        prepared.data,
        config.settings,
        canaries=canaries,
        kind=kind,
        confidence=confidence,
        observer=watcher,
    )


def audit_federation(
    method: Method,
    task: Task,
    data: FederatedData,
    settings: Settings,
    *,
    canaries: int = CANARIES,
    kind: str | None = None,
    confidence: float = 0.95,
    observer: Observer | None = None,
) -> Audit:
    """Audit a federation in memory, see `audit`."""
    require_from(_LEAST, _MOST, "canaries", canaries)
    require(0 < confidence < 1, "confidence", confidence, "in (0, 1), for example 0.95")
    promised = settings.privacy.unit != "none"
    kind = kind or (GRADIENTS if promised else IMAGES)
    require(kind in (GRADIENTS, IMAGES), "kind", kind, f"{GRADIENTS} or {IMAGES}")
    if kind == GRADIENTS and not promised:
        raise SettingError("kind", GRADIENTS, f'{IMAGES} with privacy.unit = "none", which clips no gradients')
    watcher = observer or Observer()
    federation = Simulator(method, task, data, settings)
    planted = None
    if kind == IMAGES:
        planted = _mislabelled(data, federation.members, canaries, len(task.classes), settings.seed)
        federation = Simulator(method, task, planted.data, settings)
    hidden = None if planted else federation.plant(canaries)
    while federation.round < settings.federation.rounds and federation.learns and federation.may_go_on():
        watcher.on_round(federation.run_round(watcher.on_images))
    if hidden is not None:
        scores, included = {RELEASES: [hidden.scores]}, hidden.included
    else:
        assert planted is not None
        scores, included = planted.scores(federation), planted.included
    delta = settings.privacy.delta
    return Audit(
        settings.privacy.unit,
        kind,
        federation.facts().get("privacy", {}).get("epsilon"),
        {name: _best(tried, included, delta, confidence) for name, tried in scores.items()},
        federation.round,
        settings.privacy.private,
    )


def _best(tried: Sequence[Floats], included: Bools, delta: float, confidence: float) -> Bound:
    """Return the largest bound of several scores, corrected for the choice (Bonferroni)."""
    each = 1 - (1 - confidence) / len(tried)
    bounds = [epsilon_from_below(scores, included, delta, confidence=each) for scores in tried]
    return replace(max(bounds, key=lambda bound: bound.epsilon), confidence=confidence)


@dataclass(frozen=True, eq=False)
class _Mislabelled:
    """Mislabelled `images`, client by client, some of which are in `data`."""

    data: FederatedData
    images: Images
    included: Bools  # (m,), in the order of clients and rows

    def scores(self, federation: Simulator) -> dict[str, list[Floats]]:
        """Score each image, by model: minus the loss of its wrong label, and how far it is below zero-shot CLIP's."""
        lines = federation.judge(federation.members, self.images)
        before = lines.pop(ZERO_SHOT)
        return {name: [-after.loss, before.loss - after.loss] for name, after in lines.items()}


def _mislabelled(data: FederatedData, clients: Ints, n: int, n_classes: int, seed: int) -> _Mislabelled:
    """Draw n images of `clients`, at most half of all, give them wrong labels, and toss a coin for each."""
    stream, train = draws(seed, "canaries"), data.train
    own = [rows if i in clients else np.empty(0, np.int64) for i, rows in enumerate(train.clients)]
    rows, owners = np.unique(np.concatenate(own), return_counts=True)
    alone = rows[owners == 1]
    n = min(n, len(alone) // 2)
    if n < _LEAST:
        raise FedotpError(f"an audit by images requires at least {2 * _LEAST} training images, got {len(alone)}")
    chosen = np.sort(alone[np.argsort(stream.random(len(alone)), kind="stable")[:n]])
    labels = train.labels.copy()
    labels[chosen] = (labels[chosen] + stream.integers(1, n_classes, n)) % n_classes
    is_in = np.zeros(len(labels), bool)
    is_in[chosen] = stream.random(n) < 0.5
    is_canary = np.zeros(len(labels), bool)
    is_canary[chosen] = True
    mine = tuple(np.sort(rows[is_canary[rows]]) for rows in own)
    kept = tuple(rows[~is_canary[rows] | is_in[rows]] for rows in train.clients)
    return _Mislabelled(
        data=replace(data, train=replace(train, labels=labels, clients=kept)),
        images=replace(train, labels=labels, clients=mine),
        included=is_in[np.concatenate(mine)],
    )
