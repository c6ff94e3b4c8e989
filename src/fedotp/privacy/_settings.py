"""What of a run is kept private, and how well."""

from dataclasses import dataclass
from typing import Any, Literal

from fedotp._values import MOST, require, require_choices, require_from
from fedotp.errors import SettingError

Unit = Literal["none", "example", "group", "site"]

_NEIGHBOURS = {
    "example": "zero out one training image",
    "group": "zero out one group of training images",
    "site": "zero out one site",
}


@dataclass(frozen=True)
class PrivacySettings:
    """Differential privacy: whose presence a release must not reveal, and at what price.

    Attributes:
        unit: what one may replace by nothing unnoticed: an "example" (a training image), a "group" of them (a patient,
            where the data say who that is), a whole "site"; "none" promises nothing, and changes nothing. Numbers of
            images are known.
        noise: noise multiplier z: the standard deviation of the noise is z times `clip`.
        clip: C, the most that one unit may move: a sum of gradients, or with "site" a round's sum of updates.
        delta: of (epsilon, delta): the probability that the promise may fail with; well below 1 / (number of units).
        epsilon: the budget: the run ends before more is spent; 0 for no limit.
        private: with "example" and "group", treat what clients keep as what they send; what they predict with, and
            export, is then covered too. If false, private parameters train without noise, and shared ones never see
            them.
    """

    unit: Unit = "none"
    noise: float = 1.0
    clip: float = 1.0
    delta: float = 1e-5
    epsilon: float = 0.0
    private: bool = False

    def __post_init__(self) -> None:
        require_choices(self, "privacy.")
        good = self.noise == 0 or 1e-3 <= self.noise <= 1e6
        require(good, "privacy.noise", self.noise, "0, or from 0.001 to a million")
        require(1e-9 <= self.clip <= 1e9, "privacy.clip", self.clip, "more than 0, for example 1")
        require(0 < self.delta < 1, "privacy.delta", self.delta, "in (0, 1), for example 1e-5")
        require_from(0, MOST, "privacy.epsilon", self.epsilon, " (0: no limit)")
        if self.epsilon and not self.noise:
            raise SettingError("privacy.epsilon", str(self.epsilon), "0 beside privacy.noise = 0, which spends all")

    @property
    def of_steps(self) -> bool:
        """Whether training steps are what is made private."""
        return self.unit in ("example", "group")

    def facts(self, releases: int, spent: float | None) -> dict[str, Any]:
        """What is promised, and of how many releases it is; `spent` is the epsilon of them, None without noise."""
        facts: dict[str, Any] = {
            "unit": self.unit,
            "noise": self.noise,
            "clip": self.clip,
            "releases": releases,
            "neighbours": _NEIGHBOURS[self.unit],
        }
        if self.of_steps:
            facts["private"] = self.private
        if spent is not None:
            facts |= {"epsilon": spent, "delta": self.delta}
        if self.epsilon:
            facts["max_epsilon"] = self.epsilon
        return facts

    def require_room(self, once: float) -> None:
        """Refuse a budget that one round, which spends `once`, exceeds."""
        if self.epsilon and once > self.epsilon:
            right = f"at least {once:.3g}, which one round spends (or raise privacy.noise = {self.noise:g})"
            raise SettingError("privacy.epsilon", f"{self.epsilon:g}", right)
