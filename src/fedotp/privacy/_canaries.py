"""Canaries: made-up gradients, or made-up sites, among the real ones, to audit what is released.

Each is along one number of the prompt that no other of its client has, and a coin decides whether it is in. One that
is in takes part as an image does, or a site: it is drawn with the same probability and goes through the same clip, the
same sum and the same noise. It is `LENGTH` times as long as the clip allows, so that a clip that does not work lets it
stand out. The attacker is the one that differential privacy is about: he knows everything but the coins and the noise,
so he takes away what is real in a release. Of what is left he looks at the number of a canary, and has a score:

    sum over releases of log(1 - q + q exp((x - 1/2) / z^2)),

the log-likelihood ratio, x being what was released of that number in units of the clip C, q the probability to be
drawn, z the noise multiplier.
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
"""How long a canary is before it is clipped, in units of C."""


@dataclass(eq=False)
class _Cage:
    """The k canaries among what is released for one client, or by the server."""

    stream: np.random.Generator
    included: NDArray[np.bool_]  # (k,)
    scores: Floats  # (k,)
    places: Ints | None = None  # (k,)

    def among(self, width: int) -> Ints:
        """Which of the `width` numbers that are released are theirs: (k,), all different."""
        if self.places is None:
            k = len(self.scores)
            require(k <= width, "canaries", k, f"at most {width} for each client: so many numbers are released")
            self.places = self.stream.choice(width, k, replace=False)
        return self.places

    def drawn(self, rate: float, width: int) -> Ints:
        """The numbers of those that take part in a release of `width` numbers that draws with probability `rate`."""
        places = self.among(width)
        return places[(self.stream.random(len(places)) < rate) & self.included]

    def see(self, released: Tensor, rate: float, noise: float) -> None:
        """Look at what was `released` (D,), in units of C."""
        x = released.double().cpu().numpy()[self.among(len(released))]
        if not noise:
            self.scores += x
            return
        ratio = (x - 0.5) / noise**2
        self.scores += ratio if rate >= 1 else np.logaddexp(np.log1p(-rate), np.log(rate) + ratio)


class Canaries:
    """The canaries of a federation, some for each of its clients."""

    def __init__(
        self, n: int, clients: Ints, privacy: PrivacySettings, draws: Callable[[int], np.random.Generator]
    ) -> None:
        """`n` in all, for `clients` (C,) in turn, each with its `draws`; with unit "site" all are the server's."""
        self._privacy = privacy
        cages = [0] if privacy.unit == "site" else clients.tolist()
        self._cages = {}
        for place, client in enumerate(cages):
            stream = draws(client)
            k = len(range(place, n, len(cages)))
            self._cages[client] = _Cage(stream, stream.random(k) < 0.5, np.zeros(k))

    @property
    def included(self) -> NDArray[np.bool_]:
        """Which of them are in: (n,)."""
        return np.concatenate([cage.included for cage in self._cages.values()])

    @property
    def scores(self) -> Floats:
        """High for those that look as if they were in: (n,)."""
        return np.concatenate([cage.scores for cage in self._cages.values()])

    def gradients(self, clients: Ints, rates: Sequence[float], leaves: Sequence[Tensor]) -> Iterator[list[Tensor]]:
        """Gradients (U, C, ...) by each of `leaves` (C, ...), some U at a time, of those that take part in a step."""
        sizes = [leaf[0].numel() for leaf in leaves]
        drawn = [
            self._cages[client].drawn(rate, sum(sizes)) for client, rate in zip(clients.tolist(), rates, strict=True)
        ]
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
        """Sums (C, ...) of those that take part in a step, clipped as images are."""
        return clip_and_add(self.gradients(clients, rates, leaves), leaves, self._privacy.clip)

    def see_sums(self, clients: Ints, rates: Sequence[float], sums: Sequence[Tensor]) -> None:
        """See the noisy sums (C, ...) of a step of `clients` (C,), less what is real in them."""
        for place, (client, rate) in enumerate(zip(clients.tolist(), rates, strict=True)):
            released = torch.cat([total[place].flatten() for total in sums]) / self._privacy.clip
            self._cages[client].see(released, rate, self._privacy.noise)

    def updates(self, server: Parameters) -> list[Parameters]:
        """What the sites among them send that have received `server`."""
        sizes = [value.numel() for value in server.values()]
        found = []
        for place in self._cages[0].drawn(1.0, sum(sizes)):
            moved = torch.zeros(sum(sizes), dtype=torch.float64)
            moved[place] = LENGTH * self._privacy.clip
            parts = zip(server.items(), moved.split(sizes), strict=True)
            found.append(
                {name: value.double() + part.view(value.shape).to(value.device) for (name, value), part in parts}
            )
        return found

    def see_average(self, released: Parameters, real: Parameters, n: int) -> None:
        """See the average of n sites that was `released`, of which that of the `real` ones without noise is known."""
        moved = [(released[name].double() - value.double()).flatten() for name, value in real.items()]
        self._cages[0].see(torch.cat(moved) * n / self._privacy.clip, 1.0, self._privacy.noise)
