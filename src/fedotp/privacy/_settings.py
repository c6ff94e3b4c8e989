"""Settings of differential privacy."""

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
    """Differential privacy of releases: the protected unit, noise, clipping and budget.

    Attributes:
        unit: the protected unit: an "example" (a training image), a "group" of images (a patient, if the data name
            patients) or a whole "site"; "none" disables privacy. Numbers of images are not protected.
        noise: noise multiplier z: the standard deviation of the noise is z times `clip`.
        clip: clipping norm C: the most by which one unit changes a sum of gradients (with "site", of updates).
        delta: delta of (epsilon, delta): the probability that the guarantee fails; well below 1 / (number of units).
        epsilon: the budget: the run ends before it spends more; 0 for no limit.
        private: with "example" and "group", also train the clients' private parameters with noise; the guarantee then
            covers predictions and exports. If false, they train without noise, and shared ones never see them.
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
            right = "0 (no limit) with privacy.noise = 0, whose epsilon is infinite"
            raise SettingError("privacy.epsilon", str(self.epsilon), right)

    @property
    def of_steps(self) -> bool:
        """True if privacy applies to training steps."""
        return self.unit in ("example", "group")

    def facts(self, releases: int, spent: float | None) -> dict[str, Any]:
        """Return the guarantee after this many `releases`; `spent` is their epsilon, None without noise."""
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
        """Raise SettingError if one round, which spends `once`, exceeds the budget."""
        if self.epsilon and once > self.epsilon:
            right = f"at least {once:.3g}, the cost of one round (or raise privacy.noise = {self.noise:g})"
            raise SettingError("privacy.epsilon", f"{self.epsilon:g}", right)
