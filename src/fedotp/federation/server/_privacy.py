"""Accounting of the privacy that simulated clients have spent."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedotp.federation._sampling import Ints
from fedotp.federation._settings import Settings
from fedotp.privacy import epsilon


class Accountant:
    """Privacy spent by the clients of a simulation, in which the seed determines the answers of each round.

    A training step, or with unit "site" an average, is a release. Clients have different sampling rates and so spend
    different amounts; the guarantee for all is the largest epsilon. The numbers of images are not protected.

    Nothing is stored. A round repeated after a crash releases the same numbers again, which spends nothing.
    """

    def __init__(
        self, settings: Settings, names: tuple[str, ...], sizes: Ints, who_answers: Callable[[int], Ints]
    ) -> None:
        """Account for clients with `sizes` (n,) images; `who_answers` returns the clients (C,) of a round from 0."""
        self._settings = settings
        self._privacy = settings.privacy
        self._names = names
        self._sizes = sizes
        self._who_answers = who_answers
        self._counted = (0, np.zeros(len(sizes), np.int64))

    def epsilon(self, rounds: int) -> float | None:
        """Return the largest epsilon of a client after `rounds`; None without privacy."""
        if self._privacy.unit == "none" or not self._privacy.noise:
            return None
        return max((self._epsilon(*of) for of in self._different(rounds)), default=0.0)

    def has_room(self, rounds: int) -> bool:
        """True if `rounds` do not exceed the budget."""
        spent = self.epsilon(rounds) if self._privacy.epsilon else None
        return spent is None or spent <= self._privacy.epsilon

    def facts(self, rounds: int) -> dict[str, Any]:
        """Return the guarantee and the privacy spent in `rounds`; empty without privacy, no epsilon without noise."""
        privacy = self._privacy
        if privacy.unit == "none":
            return {}
        spent = self.epsilon(rounds)
        facts = privacy.facts(max((self._releases(*of) for of in self._different(rounds)), default=0), spent)
        if spent is not None and privacy.of_steps:
            each = zip(self._names, self._sizes, self._answers(rounds), strict=True)
            facts["clients"] = {name: self._epsilon(int(n), int(times)) for name, n, times in each if n}
        return facts

    def _answers(self, rounds: int) -> Ints:
        """Count the answers of each client (n,) in the first `rounds`, or with unit "site" the averages."""
        done, counts = self._counted if self._counted[0] <= rounds else (0, np.zeros_like(self._sizes))
        counts = counts.copy()
        for round_ in range(done, rounds):
            answering = self._who_answers(round_)
            if self._privacy.unit == "site":
                counts += len(answering) >= self._settings.federation.min_clients
            else:
                counts[answering] += 1
        self._counted = (rounds, counts)
        return counts

    def _different(self, rounds: int) -> set[tuple[int, int]]:
        """Return the different pairs of sizes and numbers of answers."""
        return {(int(n), int(times)) for n, times in zip(self._sizes, self._answers(rounds), strict=True)}

    def _releases(self, n: int, times: int) -> int:
        return times * (1 if self._privacy.unit == "site" else self._settings.noisy_steps(n))

    def _epsilon(self, n: int, times: int) -> float:
        releases = self._releases(n, times)
        if self._privacy.unit == "site":
            return epsilon(self._privacy.noise, releases, self._privacy.delta)
        return self._settings.images_epsilon(n, releases)
