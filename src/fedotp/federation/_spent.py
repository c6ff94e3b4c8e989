"""The privacy that a federation's clients have spent, from how often each has answered."""

import math
from typing import Any

from fedotp.federation._noisy import n_noisy_steps, sampling_rate
from fedotp.federation._random import Ints
from fedotp.federation._settings import Settings
from fedotp.privacy import epsilon

_NEIGHBOURS = {"example": "one training image", "group": "one group of training images", "site": "one site"}


class Spent:
    """What clients with `sizes` (n,) images spend.

    A step of training, or with unit "site" an average, is a release. Clients sample their images at rates of their own,
    and what they spend differs; what is promised to all is the largest. How many images a client has is not hidden.
    """

    def __init__(self, settings: Settings, sizes: Ints) -> None:
        self._privacy = settings.privacy
        self._rounds = settings.federation
        self._sizes = sizes

    def of_clients(self, answered: Ints) -> list[float]:
        """The epsilon of each client, of `answered` (n,) rounds."""
        return [self._epsilon(int(n), int(times)) for n, times in zip(self._sizes, answered, strict=True)]

    def worst(self, answered: Ints) -> float:
        """The largest of them."""
        return max((self._epsilon(n, times) for n, times in self._different(answered)), default=0.0)

    def facts(self, answered: Ints, names: tuple[str, ...]) -> dict[str, Any]:
        """What was promised, and spent; no epsilon without noise."""
        privacy = self._privacy
        facts: dict[str, Any] = {
            "unit": privacy.unit,
            "noise": privacy.noise,
            "clip": privacy.clip,
            "releases": max((self._releases(n, times) for n, times in self._different(answered)), default=0),
            "neighbours": f"add or remove {_NEIGHBOURS[privacy.unit]}",
        }
        if privacy.unit != "site":
            facts["private"] = privacy.private
        if privacy.noise:
            facts |= {"epsilon": self.worst(answered), "delta": privacy.delta}
            if privacy.unit != "site":
                facts["clients"] = dict(zip(names, self.of_clients(answered), strict=True))
        if privacy.epsilon:
            facts["max_epsilon"] = privacy.epsilon
        return facts

    def _different(self, answered: Ints) -> set[tuple[int, int]]:
        """Sizes, and rounds answered."""
        return {(int(n), int(times)) for n, times in zip(self._sizes, answered, strict=True)}

    def _releases(self, n: int, times: int) -> int:
        if self._privacy.unit == "site":
            return times
        return times * n_noisy_steps(n, self._rounds.local_epochs, self._rounds.batch_size)

    def _epsilon(self, n: int, times: int) -> float:
        rate = 1.0 if self._privacy.unit == "site" else sampling_rate(n, self._rounds.batch_size)
        releases = self._releases(n, times)
        return epsilon(self._privacy.noise, releases, self._privacy.delta, rate) if self._privacy.noise else math.inf
