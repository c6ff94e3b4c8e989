"""Robust rules: what becomes of the updates of a round before they are averaged.

With x the server's parameters, u_1 .. u_n the updates of a round, each as one long vector, and f of them assumed to be
bad, the method averages, by `rule`,

    average      u_1 .. u_n as they are                                                      Eq. 4
    bounded      x + (u_i - x) min(1, M / |u_i - x|): no update is longer than M, which is   [1]
                 `bound` or, where that is 0, the median length of the round's updates
    median       the median of each number                                                   [2]
    trimmed      the mean of each number without its f largest and f smallest                [2]
    krum         the update with the lowest score: the sum of its squared distances to the   [3]
                 n - f - 2 others next to it
    multi-krum   the m updates with the lowest scores; m is `kept` or, where that is 0,      [3]
                 n - f

A mean of "bounded" and "multi-krum" is the method's own, by default weighted by numbers of images; the others know no
weights, as such a number is a site's word. An update with a number that is not finite is left out first. Where too few
are left for what a rule promises, n < 2 f + 1 of "trimmed" and n < 2 f + 3 of Krum, a round changes nothing. Of two
equal scores the first update's counts as lower, of an even number of lengths the median is the smaller of the two in
the middle, of an even number of updates it is their mean.

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
    """What C clients sent: their numbers (C,), parameters (C, ...) and weights (C,)."""

    clients: Tensor
    params: Parameters
    weights: Tensor

    def rows(self, at: Tensor) -> "Updates":
        """Those at `at`, places or a mask."""
        return Updates(self.clients[at], {name: value[at] for name, value in self.params.items()}, self.weights[at])


class Rule:
    """Makes of the updates of a round those that are averaged.

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
        """Whether all updates are averaged as they are."""
        return self.settings.rule == "average"

    def n_bad(self, n: int) -> int:
        """f, how many of n updates are assumed to be bad."""
        assumed = self.settings.malicious
        return int(assumed) if assumed >= 1 or not assumed else max(1, int(assumed * n))

    def least(self, n: int) -> int:
        """How many updates it takes, where the f of n are assumed to be bad."""
        more = {"trimmed": 1, "krum": 3, "multi-krum": 3}.get(self.settings.rule)
        return 1 if more is None else 2 * self.n_bad(n) + more

    def require(self, n_clients: int) -> None:
        """Refuse a rule that needs more clients in a round than there are."""
        if n_clients < (least := self.least(n_clients)):
            raise FedotpError(
                f'server.rule = "{self.settings.rule}": needs at least {least} clients in a round if '
                f"{self.n_bad(n_clients)} of them may be bad (server.malicious), and there are {n_clients}; "
                '"median" and "bounded" need fewer'
            )

    def chosen_of(self, averaged: Updates | None) -> Ints | None:
        """Whose updates were `averaged`, where the rule chooses among them; None where it does not."""
        if self.settings.rule not in ("krum", "multi-krum"):
            return None
        return np.empty(0, np.int64) if averaged is None else averaged.clients.cpu().numpy()

    @torch.no_grad()
    def __call__(self, server: Parameters, sent: Updates) -> Updates | None:
        """What is averaged of what was sent; None where too few updates are left.

        The median of updates, and their trimmed mean, is one update, which no single client has sent.
        """
        if self.is_plain:
            return sent
        sent = sent.rows(_finite(sent.params))
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
        """The places of the updates with the lowest scores, in ascending order."""
        flat = _flat(params).double()
        n = len(flat)
        f = self.n_bad(n)
        apart = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist").square()
        nearest = apart.fill_diagonal_(torch.inf).sort(1).values[:, : n - f - 2]
        kept = 1 if self.settings.rule == "krum" else min(n, self.settings.kept or n - f)
        return nearest.sum(1).sort(stable=True).indices[:kept].sort().values


def _flat(params: Parameters) -> Tensor:
    """All parameters of each client as one vector: (C, ...) to (C, P)."""
    return torch.cat([value.flatten(1) for value in params.values()], dim=1)


def _finite(params: Parameters) -> Tensor:
    """Whose numbers are all finite: (C,)."""
    return _flat(params).isfinite().all(1)
