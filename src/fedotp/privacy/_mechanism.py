"""Differential privacy of the average that the server publishes.

Sites receive the prompt P and return prompts P_i. A round releases

    P + (sum_i clip(P_i - P, C) + z C N(0, 1)) / n,

where clip() limits the norm to C. n is fixed: the number of sites expected, not of those that answer, so a site that
sends nothing, or an unchanged prompt, counts as 0. Hence one site changes the sum by at most C compared with sending
nothing: the zero-out relation of sites with sensitivity C, which the accountant uses. There is no amplification by
sampling, because the sampled sites are public. Which sites are connected and answer is not hidden.
"""

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp.methods import Parameters
from fedotp.privacy._account import Releases, epsilon
from fedotp.privacy._canaries import Canaries
from fedotp.privacy._clipping import clipped_sum
from fedotp.privacy._settings import PrivacySettings

Floats = NDArray[np.float64]


class Entropy:
    """The operating system's entropy: unlike draws from the federation's seed, which all sites know, unpredictable."""

    def random(self, size: int) -> Floats:
        """Draw uniform numbers (size,) in [0, 1)."""
        return np.asarray(_bits(size) * 2.0**-53)

    def standard_normal(self, size: tuple[int, ...]) -> Floats:
        """Draw standard normal numbers of this shape.

        Each combines four Box-Muller draws: the gaps between floating-point values of a single one could reveal the
        number it was added to (Holohan and Braghin, Secure random sampling in differential privacy, 2021).
        """
        uniform = ((_bits(8 * math.prod(size)) + 0.5) * 2.0**-53).reshape(2, 4, *size)  # never 0
        four = np.sqrt(-2 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])
        return np.asarray(four.sum(0) / 2)


Chance = np.random.Generator | Entropy
"""A source of random numbers: a generator in simulations, `Entropy` where they must be unpredictable."""


def _bits(n: int) -> Floats:
    """Draw integers (n,) from 0 to 2^53 - 1."""
    return (np.frombuffer(os.urandom(8 * n), np.uint64) >> 11).astype(np.float64)


def noisy_average(
    server: Parameters,
    updates: Sequence[Parameters],
    n: int,
    privacy: PrivacySettings,
    chance: Chance,
    canaries: Canaries | None = None,
) -> Parameters:
    """Compute a round's release from `updates` of `server`, n sites expected, by the equation above.

    `canaries` of an audit participate like sites, and score the release.
    """
    planted = canaries.updates(server) if canaries else []
    total = clipped_sum([*updates, *planted], server, privacy.clip)
    released = {
        name: (value + (total[name] + privacy.noise * privacy.clip * _normal(value, chance)) / n).to(value.dtype)
        for name, value in server.items()
        if not updates or name in updates[0]
    }
    if canaries:
        real = clipped_sum(updates, server, privacy.clip)
        without = {name: (value + real[name] / n).to(value.dtype) for name, value in server.items()}
        canaries.see_average(released, without, n)
    return released


def _normal(like: Tensor, chance: Chance) -> Tensor:
    return torch.from_numpy(np.asarray(chance.standard_normal(tuple(like.shape)))).to(like.device)


class Mechanism:
    """The Gaussian mechanism for a server's averages, and its privacy accounting."""

    def __init__(self, privacy: PrivacySettings, n_sites: int, releases: Releases) -> None:
        """`releases` are the earlier ones; noise comes from the operating system."""
        self._privacy = privacy
        self._n_sites = n_sites
        self._releases = releases

    @property
    def epsilon(self) -> float | None:
        """The epsilon spent; None without noise."""
        return self._epsilon() if self._privacy.noise else None

    @property
    def is_spent(self) -> bool:
        """True if one more release would exceed the budget."""
        return bool(self._privacy.epsilon) and self._epsilon(1) > self._privacy.epsilon

    def facts(self) -> dict[str, Any]:
        """Return the guarantee and the epsilon spent, for manifests and reports."""
        return {**self._privacy.facts(self._releases.count, self.epsilon), "sites": self._n_sites}

    def release(self, server: Parameters, updates: Sequence[Parameters], n: int, round_: int) -> Parameters:
        """Return the next `server` from the `updates` of a round with n expected sites, and log the release."""
        released = noisy_average(server, updates, n, self._privacy, Entropy())
        record = {"round": round_, "noise": self._privacy.noise, "clip": self._privacy.clip, "sites": n}
        self._releases.add(record)
        return released

    def _epsilon(self, more: int = 0) -> float:
        return epsilon(self._privacy.noise, self._releases.count + more, self._privacy.delta)
