"""One run with canaries, and the lower bound on epsilon that it gives.

Canaries are additional gradients (or sites) in a private run: the strongest attack, on every release (see
`fedotp.federation.Canaries`).
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedotp._values import require, require_from
from fedotp.audit._bound import Bound, epsilon_from_below
from fedotp.config import Config
from fedotp.errors import FedotpError, SettingError
from fedotp.federation import FederatedData, Settings, Simulator
from fedotp.methods import Method, Task
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import prepare
from fedotp.runs.watch import Observer

CANARIES = 500  # default number
_LEAST = 10
_MOST = 100_000


@dataclass(frozen=True)
class Audit:
    """The lower bound on epsilon from one run with canaries, by an attack on all releases.

    Attributes:
        unit: the protected unit: "example", "group" or "site".
        upper: the accountant's epsilon; None without noise.
        bound: the lower bound.
        rounds: number of rounds of the audited run.
    """

    unit: str
    upper: float | None
    bound: Bound
    rounds: int

    @property
    def is_broken(self) -> bool:
        """True if the guarantee is refuted."""
        return self.upper is not None and self.bound.epsilon > self.upper

    def as_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {**asdict(self), "broken": self.is_broken}


def audit(
    config: Config,
    *,
    canaries: int = CANARIES,
    confidence: float = 0.95,
    like: RunDirectory | None = None,
    observer: Observer | None = None,
) -> Audit:
    """Run the federation that `config` describes once, with canaries; its prompts are discarded.

    `like` is a run whose partition is reused.
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
    confidence: float = 0.95,
    observer: Observer | None = None,
) -> Audit:
    """Audit a federation in memory, see `audit`."""
    require_from(_LEAST, _MOST, "canaries", canaries)
    require(0 < confidence < 1, "confidence", confidence, "in (0, 1), for example 0.95")
    if settings.privacy.unit == "none":
        right = "example, group or site for an audit by canaries; --probe attacks a run without privacy"
        raise SettingError("privacy.unit", '"none"', right)
    watcher = observer or Observer()
    federation = Simulator(method, task, data, settings)
    hidden = federation.plant(canaries)
    while federation.round < settings.federation.rounds and federation.learns and federation.may_go_on():
        watcher.on_round(federation.run_round(watcher.on_images))
    return Audit(
        settings.privacy.unit,
        federation.facts().get("privacy", {}).get("epsilon"),
        epsilon_from_below(hidden.scores, hidden.included, settings.privacy.delta, confidence=confidence),
        federation.round,
    )
