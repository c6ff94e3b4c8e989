"""Differential privacy of the average that the sites see.

A round releases, of the prompts P_i that sites send back for the prompt P that they were sent,

    P + (sum_i clip(P_i - P, C) + z C N(0, 1)) / n,

clip() scaling what is longer than C down to C. n is fixed: the number of sites that are expected, not of those that
answer, so a site that sends nothing, or the prompt as it was, counts as 0. Hence whatever one site sends moves the sum
by C at most, compared with its sending nothing: the add-or-remove-one relation, of sites, with the sum's sensitivity C,
which is what is accounted for. Nothing is gained from drawing only some of the sites: who is drawn is known to all.
Who is connected, and who answers, is not hidden.

"adaptive" lets C follow the median length of the updates (Andrew et al., Differentially private learning with adaptive
clipping, 2021). The count of short updates gets noise of its own, and the sum so much more that both together spend
what z alone would.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedotp.errors import FedotpError
from fedotp.methods import Parameters
from fedotp.privacy._account import epsilon
from fedotp.privacy._lengths import clipped_sum, length
from fedotp.privacy._noise import Chance, Entropy
from fedotp.privacy._releases import Releases

_QUANTILE, _RATE = 0.5, 0.2  # of "adaptive": the share of updates that is not clipped; how fast C follows


class Private(Protocol):
    """What a server decides on the privacy of its averages; `fedotp.flower` has it among its server's settings."""

    @property
    def privacy(self) -> str:
        """Where updates are clipped; "adaptive" lets the norm follow them."""

    @property
    def noise(self) -> float:
        """Noise multiplier."""

    @property
    def clip(self) -> float:
        """Clipping norm, the first one of "adaptive"."""

    @property
    def delta(self) -> float:
        """Account for what is spent at this delta; 0: do not."""

    @property
    def max_epsilon(self) -> float:
        """The budget; 0: none."""


def noisy_average(
    server: Parameters, updates: Sequence[Parameters], n: int, *, clip: float, noise: float, chance: Chance
) -> Parameters:
    """What a round releases of `updates` of `server`, n sites expected: the equation above."""
    total = clipped_sum(updates, server, clip)
    return {
        name: (value + (total[name] + noise * clip * _normal(value, chance)) / n).to(value.dtype)
        for name, value in server.items()
    }


def _normal(like: Tensor, chance: Chance) -> Tensor:
    return torch.from_numpy(np.asarray(chance.standard_normal(tuple(like.shape)))).to(like.device)


def require_budget(settings: Private) -> None:
    """Refuse a budget that not even one round fits in, and an account that nobody could keep."""
    if settings.delta:
        once = epsilon(settings.noise, 1, settings.delta)
        if settings.max_epsilon and once > settings.max_epsilon:
            raise FedotpError(
                f"max-epsilon = {settings.max_epsilon:g}: one round with noise {settings.noise:g} spends {once:.3g}; "
                "raise noise or max-epsilon"
            )


class Mechanism:
    """What makes an average private, and knows what was spent on it."""

    def __init__(self, settings: Private, n_sites: int, releases: Releases, chance: Chance | None = None) -> None:
        """Of `n_sites` sites in all; `releases` are those before. Noise nobody can foretell, unless by `chance`."""
        self._settings = settings
        self._chance = chance or Entropy()
        self._n_sites = n_sites
        self._releases = releases
        self.clip = float(releases.last.get("next_clip", settings.clip))

    @property
    def epsilon(self) -> float | None:
        """What is spent, where it is accounted for."""
        return self._epsilon() if self._settings.delta else None

    @property
    def is_spent(self) -> bool:
        """Whether one more release would exceed the budget."""
        settings = self._settings
        return bool(settings.max_epsilon) and self._epsilon(1) > settings.max_epsilon

    def facts(self) -> dict[str, Any]:
        """What was done and, where it is accounted for, spent."""
        settings = self._settings
        facts: dict[str, Any] = {
            "where": settings.privacy,
            "noise": settings.noise,
            "clip": self.clip,
            "sites": self._n_sites,
            "releases": self._releases.count,
        }
        if settings.delta:
            facts |= {"epsilon": self._epsilon(), "delta": settings.delta, "neighbours": "add or remove one site"}
        if settings.max_epsilon:
            facts["max_epsilon"] = settings.max_epsilon
        return facts

    def release(self, server: Parameters, updates: Sequence[Parameters], share: float, round_: int) -> Parameters:
        """The next `server`, of the `updates` of a round in which `share` of all sites is expected."""
        n = max(1, round(share * self._n_sites))
        noise, next_clip = self._settings.noise, self.clip
        if self._settings.privacy == "adaptive":
            noise, next_clip = self._follow(server, updates, n)
        released = noisy_average(server, updates, n, clip=self.clip, noise=noise, chance=self._chance)
        self._releases.add({"round": round_, "noise": noise, "clip": self.clip, "next_clip": next_clip, "sites": n})
        self.clip = next_clip
        return released

    def _follow(self, server: Parameters, updates: Sequence[Parameters], n: int) -> tuple[float, float]:
        """Of "adaptive": the noise multiplier of the sum, and the next clipping norm."""
        noise = self._settings.noise
        of_count = max(n / 20, noise)  # the paper's n / 20 is less than the whole noise where sites are few
        short = sum(length(update, server) <= self.clip for update in updates)
        centred = short - len(updates) / 2  # one site moves it by 1/2
        if not noise:
            return 0.0, self._next_clip(0.5 + centred / n)
        of_sum = (noise**-2 - (2 * of_count) ** -2) ** -0.5
        return of_sum, self._next_clip(0.5 + (centred + of_count * float(self._chance.standard_normal(()))) / n)

    def _next_clip(self, fraction: float) -> float:
        return self.clip * math.exp(-_RATE * (min(max(fraction, 0.0), 1.0) - _QUANTILE))

    def _epsilon(self, more: int = 0) -> float:
        return epsilon(self._settings.noise, self._releases.count + more, self._settings.delta)
