"""The privacy that a federation's clients have spent, from how often each has answered."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedotp._values import show
from fedotp.errors import FedotpError, SettingError
from fedotp.federation._noisy import n_noisy_steps, sampling_rate
from fedotp.federation._random import Ints
from fedotp.federation._rule import Rule
from fedotp.federation._settings import Settings
from fedotp.methods import Method, Task
from fedotp.privacy import epsilon


def require_average(method: Method, task: Task, rule: Rule) -> None:
    """Refuse `privacy.unit = "site"` where the server makes no average, or not of all updates alike."""
    if method.knows_clients(task) or not method.shared(task, 1):
        raise FedotpError(f'privacy.unit = "site": {method.title} has no average to protect this way')
    if not rule.is_plain:
        right = '"average" beside privacy.unit = "site", whose noise is for a sum of all updates'
        raise SettingError("server.rule", show(rule.settings.rule), right)


def steps_per_round(settings: Settings, n_images: int) -> int:
    """Noisy steps of a client with so many images in a round."""
    return n_noisy_steps(n_images, settings.federation.local_epochs, settings.federation.batch_size)


def images_epsilon(settings: Settings, n_images: int, steps: int) -> float:
    """What a client with so many images has spent of their privacy in so many noisy steps."""
    privacy = settings.privacy
    return epsilon(privacy.noise, steps, privacy.delta, sampling_rate(n_images, settings.federation.batch_size))


class Spent:
    """What the clients of a simulation spend: who answers in which round follows from the seed.

    A step of training, or with unit "site" an average, is a release. Clients sample their images at rates of their own,
    and what they spend differs; what is promised to all is the largest. How many images a client has is not hidden.

    Nothing need be remembered. A round that is made again after a kill releases the same bits again, and tells no more
    than once.
    """

    def __init__(
        self, settings: Settings, names: tuple[str, ...], sizes: Ints, who_answers: Callable[[int], Ints]
    ) -> None:
        """Of clients with `sizes` (n,) images; `who_answers` tells those (C,) of a round, counted from 0."""
        self._settings = settings
        self._privacy = settings.privacy
        self._names = names
        self._sizes = sizes
        self._who_answers = who_answers
        self._counted = (0, np.zeros(len(sizes), np.int64))

    def epsilon(self, rounds: int) -> float | None:
        """What who has spent most has spent after so many rounds; None where nothing is promised."""
        if self._privacy.unit == "none" or not self._privacy.noise:
            return None
        return max((self._epsilon(*of) for of in self._different(rounds)), default=0.0)

    def has_room(self, rounds: int) -> bool:
        """Whether so many rounds do not exceed the budget."""
        spent = self.epsilon(rounds) if self._privacy.epsilon else None
        return spent is None or spent <= self._privacy.epsilon

    def require_room(self) -> None:
        """Refuse a budget that not even one round fits in, and an account that nobody could keep."""
        once = self.epsilon(1)
        if once is not None:
            self._privacy.require_room(once)

    def facts(self, rounds: int) -> dict[str, Any]:
        """What was promised, and spent in so many rounds; nothing where nothing is, no epsilon without noise."""
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
        """In how many of the first `rounds` each client (n,) answers, or with unit "site" an average is made."""
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
        """Sizes, and rounds answered, that there are."""
        return {(int(n), int(times)) for n, times in zip(self._sizes, self._answers(rounds), strict=True)}

    def _releases(self, n: int, times: int) -> int:
        return times * (1 if self._privacy.unit == "site" else steps_per_round(self._settings, n))

    def _epsilon(self, n: int, times: int) -> float:
        releases = self._releases(n, times)
        if self._privacy.unit == "site":
            return epsilon(self._privacy.noise, releases, self._privacy.delta)
        return images_epsilon(self._settings, n, releases)
