"""Robust rules, applied to the updates of a round before averaging.

With x the server's parameters, u_1 .. u_n the updates of a round, each as one vector, and f of them assumed to be
malicious, the method averages, by `rule`,

    average      u_1 .. u_n                                                                  Eq. 4
    bounded      x + (u_i - x) min(1, M / |u_i - x|): updates clipped to the length M, which [1]
                 is `bound` or, if that is 0, the median length of the round's updates
    median       the median of each number                                                   [2]
    trimmed      the mean of each number without its f largest and f smallest                [2]
    krum         the update with the lowest score: the sum of its squared distances to the   [3]
                 n - f - 2 nearest others
    multi-krum   the m updates with the lowest scores; m is `kept` or, if that is 0, n - f   [3]

"bounded" and "multi-krum" use the method's average, by default weighted by numbers of images; the other rules are
unweighted, because these numbers are unverified. Updates that are not finite are discarded first. A round with too few
updates for the guarantee of a rule, n < 2 f + 1 for "trimmed" and n < 2 f + 3 for Krum, is skipped. Ties of scores go
to the first update. The median of an even number of lengths is the smaller of the middle two, the median of an even
number of updates their mean.

[1] Sun et al.: Can you really backdoor federated learning?, 2019.
[2] Yin et al.: Byzantine-robust distributed learning: towards optimal statistical rates, ICML 2018.
[3] Blanchard et al.: Machine learning with adversaries: Byzantine tolerant gradient descent, NeurIPS 2017.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedotp.errors import FedotpError
from fedotp.federation._sampling import Ints
from fedotp.federation._settings import ServerStepSettings
from fedotp.methods import Parameters


class Updates(NamedTuple):
    """Updates of C clients: their numbers (C,), parameters (C, ...) and weights (C,)."""

    clients: Tensor
    params: Parameters
    weights: Tensor

    def rows(self, at: Tensor) -> "Updates":
        """Return the updates at `at`, indices or a mask."""
        return Updates(self.clients[at], {name: value[at] for name, value in self.params.items()}, self.weights[at])


class Rule:
    """Rule that turns the updates of a round into those to average.

    Examples:
        >>> rule = Rule(ServerStepSettings(rule="median"))
        >>> sent = Updates(torch.arange(3), {"prompt": torch.tensor([[1.0], [2.0], [99.0]])}, torch.ones(3))
        >>> rule({"prompt": torch.zeros(1)}, sent).params["prompt"]
        tensor([[2.]])
    """

    def __init__(self, settings: ServerStepSettings) -> None:
        self.settings = settings

    @property
    def is_plain(self) -> bool:
        """True for the plain average."""
        return self.settings.rule == "average"

    def n_bad(self, n: int) -> int:
        """Return f, the number of n updates that are assumed to be malicious."""
        assumed = self.settings.malicious
        return int(assumed) if assumed >= 1 or not assumed else max(1, int(assumed * n))

    def least(self, n: int) -> int:
        """Return the number of updates that the rule needs with f for n updates."""
        more = {"trimmed": 1, "krum": 3, "multi-krum": 3}.get(self.settings.rule)
        return 1 if more is None else 2 * self.n_bad(n) + more

    def require(self, n_clients: int) -> None:
        """Require enough clients in a round for the rule."""
        if n_clients < (least := self.least(n_clients)):
            raise FedotpError(
                f'server.rule = "{self.settings.rule}": needs at least {least} clients in a round if '
                f"{self.n_bad(n_clients)} of them may be malicious (server.malicious), but there are {n_clients}; "
                'use "median" or "bounded", which need fewer'
            )

    def chosen_of(self, averaged: Updates | None) -> Ints | None:
        """Return the clients whose updates were `averaged`, for rules that choose; None for others."""
        if self.settings.rule not in ("krum", "multi-krum"):
            return None
        return np.empty(0, np.int64) if averaged is None else averaged.clients.cpu().numpy()

    @torch.no_grad()
    def __call__(self, server: Parameters, sent: Updates) -> Updates | None:
        """Return the updates to average; None if there are too few.

        A median or trimmed mean is returned as a single update.
        """
        if self.is_plain:
            return sent
        sent = sent.rows(_flat(sent.params).isfinite().all(1))
        n = len(sent.clients)
        if n < self.least(n):
            return None
        if self.settings.rule in ("krum", "multi-krum"):
            return sent.rows(self._chosen(sent.params))
        if self.settings.rule == "bounded":
            return sent._replace(params=self._bounded(server, sent.params))
        cut = (n - 1) // 2 if self.settings.rule == "median" else self.n_bad(n)
        middle = {
            name: value.double().sort(0).values[cut : n - cut].mean(0, keepdim=True).to(value.dtype)
            for name, value in sent.params.items()
        }
        return Updates(sent.clients[:1], middle, torch.ones_like(sent.weights[:1]))

    def _bounded(self, server: Parameters, params: Parameters) -> Parameters:
        lengths = _flat({name: value.double() - server[name].double() for name, value in params.items()}).norm(dim=1)
        bound = lengths.median() if not self.settings.bound else lengths.new_tensor(self.settings.bound)
        shorter = {}
        for name, value in params.items():
            shape = (-1, *[1] * (value.dim() - 1))
            start, factor = server[name].double(), (bound / lengths).view(shape)
            moved = (start + factor * (value.double() - start)).to(value.dtype)
            shorter[name] = torch.where((lengths > bound).view(shape), moved, value)
        return shorter

    def _chosen(self, params: Parameters) -> Tensor:
        """Return the indices of the updates with the lowest scores, in ascending order."""
        flat = _flat(params).double()
        n = len(flat)
        f = self.n_bad(n)
        apart = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist").square()
        nearest = apart.fill_diagonal_(torch.inf).sort(1).values[:, : n - f - 2]
        kept = 1 if self.settings.rule == "krum" else min(n, self.settings.kept or n - f)
        return nearest.sum(1).sort(stable=True).indices[:kept].sort().values


def _flat(params: Parameters) -> Tensor:
    """Flatten all parameters (C, ...) of each client into one vector: (C, P)."""
    return torch.cat([value.flatten(1) for value in params.values()], dim=1)
