"""Canaries: artificial gradients, or artificial sites, among the real ones, to audit releases.

Each canary lies along its own coordinate of the prompt, and a coin decides whether it is included. An included canary
is treated like an image (or a site): the same sampling probability, clipping, sum and noise. Its norm is `LENGTH` times
the clip, so that it stands out if clipping fails. The attacker is that of differential privacy: he knows everything but
the coins and the noise, and subtracts the real part of each release. His score for a canary is the log-likelihood ratio

    sum over releases of log(1 - q + q exp((x - 1/2) / z^2)),

where x is the released value of its coordinate in units of the clip C, q the sampling probability, z the noise
multiplier.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp._values import require
from fedotp.methods import Parameters
from fedotp.privacy._clipping import CHUNK, clip_and_add
from fedotp.privacy._settings import PrivacySettings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LENGTH = 10.0
"""Norm of a canary before clipping, in units of C."""


@dataclass(eq=False)
class _Group:
    """The k canaries of one client, or of the server."""

    stream: np.random.Generator
    included: NDArray[np.bool_]  # (k,)
    scores: Floats  # (k,)
    places: Ints | None = None  # (k,)

    def among(self, width: int) -> Ints:
        """Return their coordinates among the `width` released ones: (k,), distinct."""
        if self.places is None:
            k = len(self.scores)
            require(k <= width, "canaries", k, f"at most {width} per client, the number of released values")
            self.places = self.stream.choice(width, k, replace=False)
        return self.places

    def drawn(self, rate: float, width: int) -> Ints:
        """Draw included canaries with probability `rate`; return their coordinates among `width`."""
        places = self.among(width)
        return places[(self.stream.random(len(places)) < rate) & self.included]

    def see(self, released: Tensor, rate: float, noise: float) -> None:
        """Add a release (D,), in units of C, to the scores."""
        x = released.double().cpu().numpy()[self.among(len(released))]
        if not noise:
            self.scores += x
            return
        ratio = (x - 0.5) / noise**2
        self.scores += ratio if rate >= 1 else np.logaddexp(np.log1p(-rate), np.log(rate) + ratio)


class Canaries:
    """The canaries of a federation, by client."""

    def __init__(
        self, n: int, clients: Ints, privacy: PrivacySettings, draws: Callable[[int], np.random.Generator]
    ) -> None:
        """Deal `n` canaries in turn to `clients` (C,), each with its `draws`; with unit "site" all to the server."""
        self._privacy = privacy
        owners = [0] if privacy.unit == "site" else clients.tolist()
        self._groups = {}
        for place, client in enumerate(owners):
            stream = draws(client)
            k = len(range(place, n, len(owners)))
            self._groups[client] = _Group(stream, stream.random(k) < 0.5, np.zeros(k))

    @property
    def included(self) -> NDArray[np.bool_]:
        """True for included canaries: (n,)."""
        return np.concatenate([group.included for group in self._groups.values()])

    @property
    def scores(self) -> Floats:
        """Scores (n,), higher for canaries that look included."""
        return np.concatenate([group.scores for group in self._groups.values()])

    def gradients(self, clients: Ints, rates: Sequence[float], leaves: Sequence[Tensor]) -> Iterator[list[Tensor]]:
        """Yield gradients (U, C, ...) of each of `leaves` (C, ...), U canaries of a step at a time."""
        sizes = [leaf[0].numel() for leaf in leaves]
        each = zip(clients.tolist(), rates, strict=True)
        drawn = [self._groups[client].drawn(rate, sum(sizes)) for client, rate in each]
        for start in range(0, max(map(len, drawn)), CHUNK):
            rows = torch.zeros(CHUNK, len(clients), sum(sizes), dtype=leaves[0].dtype)
            for client, places in enumerate(drawn):
                own = torch.from_numpy(places[start : start + CHUNK])
                rows[torch.arange(len(own)), client, own] = LENGTH * self._privacy.clip
            yield [
                part.reshape(CHUNK, *leaf.shape).to(leaf)
                for part, leaf in zip(rows.split(sizes, dim=2), leaves, strict=True)
            ]

    def planted(self, clients: Ints, rates: Sequence[float], leaves: Sequence[Tensor]) -> list[Tensor]:
        """Sum the canaries of a step, each clipped like an image: (C, ...)."""
        return clip_and_add(self.gradients(clients, rates, leaves), leaves, self._privacy.clip)

    def see_sums(self, clients: Ints, rates: Sequence[float], sums: Sequence[Tensor]) -> None:
        """Score the noisy sums (C, ...) of a step of `clients` (C,), without their real part."""
        for place, (client, rate) in enumerate(zip(clients.tolist(), rates, strict=True)):
            released = torch.cat([total[place].flatten() for total in sums]) / self._privacy.clip
            self._groups[client].see(released, rate, self._privacy.noise)

    def updates(self, server: Parameters) -> list[Parameters]:
        """Return the updates of the artificial sites after they received `server`."""
        sizes = [value.numel() for value in server.values()]
        found = []
        for place in self._groups[0].drawn(1.0, sum(sizes)):
            moved = torch.zeros(sum(sizes), dtype=torch.float64)
            moved[place] = LENGTH * self._privacy.clip
            parts = zip(server.items(), moved.split(sizes), strict=True)
            found.append(
                {name: value.double() + part.view(value.shape).to(value.device) for (name, value), part in parts}
            )
        return found

    def see_average(self, released: Parameters, real: Parameters, n: int) -> None:
        """Score the `released` average of n sites, given the noiseless average of the `real` sites."""
        moved = [(released[name].double() - value.double()).flatten() for name, value in real.items()]
        self._groups[0].see(torch.cat(moved) * n / self._privacy.clip, 1.0, self._privacy.noise)
