"""Differential privacy of the average that the sites see.

A round releases, of the prompts P_i that sites send back for the prompt P that they were sent,

    P + (sum_i clip(P_i - P, C) + z C N(0, 1)) / n,

clip() scaling what is longer than C down to C. n is fixed: the number of sites that are expected, not of those that
answer, so a site that sends nothing, or the prompt as it was, counts as 0. Hence whatever one site sends moves the sum
by C at most, compared with its sending nothing: the zero-out relation, of sites, with the sum's sensitivity C, which is
what is accounted for. Nothing is gained from drawing only some of the sites: who is drawn is known to all.
Who is connected, and who answers, is not hidden.
"""

import math
import os
from collections.abc import Sequence
from typing import Any, Protocol

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


class Chance(Protocol):
    """Where draws come from: a NumPy generator in a simulation, `Entropy` where they must be unpredictable."""

    def random(self, size: int) -> Floats:
        """Uniform numbers (size,) in [0, 1)."""

    def standard_normal(self, size: tuple[int, ...]) -> Floats:
        """Standard normal numbers of this shape."""


class Entropy:
    """The operating system's: knowing the seed of a federation, as all sites do, does not help to predict it."""

    def random(self, size: int) -> Floats:
        """Uniform numbers (size,) in [0, 1)."""
        return np.asarray(_bits(size) * 2.0**-53)

    def standard_normal(self, size: tuple[int, ...]) -> Floats:
        """Standard normal numbers of this shape."""
        return gaussian(size)


def gaussian(shape: tuple[int, ...]) -> Floats:
    """Standard normal numbers from the operating system's entropy: those of NumPy's generators are predictable.

    Each is made of four by Box and Muller: of a single one, the gaps between floating-point numbers could reveal
    what it was added to (Holohan and Braghin, Secure random sampling in differential privacy, 2021).
    """
    uniform = ((_bits(8 * math.prod(shape)) + 0.5) * 2.0**-53).reshape(2, 4, *shape)  # never 0
    four = np.sqrt(-2 * np.log(uniform[0])) * np.cos(2 * np.pi * uniform[1])
    return np.asarray(four.sum(0) / 2)


def _bits(n: int) -> Floats:
    """Whole numbers (n,) from 0 to 2^53 - 1."""
    return (np.frombuffer(os.urandom(8 * n), np.uint64) >> 11).astype(np.float64)


def noisy_average(
    server: Parameters,
    updates: Sequence[Parameters],
    n: int,
    privacy: PrivacySettings,
    chance: Chance,
    canaries: Canaries | None = None,
) -> Parameters:
    """What a round releases of `updates` of `server`, n sites expected: the equation above.

    `canaries` of an audit take part as sites do, and see what is released.
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
    """What makes averages private for every site, and counts what was spent on them."""

    def __init__(
        self, privacy: PrivacySettings, n_sites: int, releases: Releases, chance: Chance | None = None
    ) -> None:
        """Of `n_sites` sites in all; `releases` are those before. Noise is the operating system's unless `chance`."""
        self._privacy = privacy
        self._chance = chance or Entropy()
        self._n_sites = n_sites
        self._releases = releases

    @property
    def epsilon(self) -> float | None:
        """What is spent; None without noise."""
        return self._epsilon() if self._privacy.noise else None

    @property
    def is_spent(self) -> bool:
        """Whether one more release would exceed the budget."""
        return bool(self._privacy.epsilon) and self._epsilon(1) > self._privacy.epsilon

    def facts(self) -> dict[str, Any]:
        """What was promised, and spent."""
        return {**self._privacy.facts(self._releases.count, self.epsilon), "sites": self._n_sites}

    def release(self, server: Parameters, updates: Sequence[Parameters], n: int, round_: int) -> Parameters:
        """The next `server`, of the `updates` of a round in which n sites are expected."""
        released = noisy_average(server, updates, n, self._privacy, self._chance)
        record = {"round": round_, "noise": self._privacy.noise, "clip": self._privacy.clip, "sites": n}
        self._releases.add(record)
        return released

    def _epsilon(self, more: int = 0) -> float:
        return epsilon(self._privacy.noise, self._releases.count + more, self._privacy.delta)
