"""FedMGP: several short prompts per client, of which it shares a random selection."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._values import MOST, require, require_choices, require_from
from fedotp.matching import cross_entropy, pooled_score
from fedotp.methods._method import LearningRates, Method, weighted_average
from fedotp.methods._parts import Batch, Kind, Parameters, Prompt
from fedotp.methods._task import Task, constant

_WORDS, _N_WORDS = "a photo of a", 4
_NOISE = 0.01
_MOST_GROUPS = 256
_COLDEST = 1e-6


@dataclass(frozen=True)
class FedMGP(Method):
    """Bo et al., NeurIPS 2025, text prompts only: G groups of few vectors, whose scores are averaged.

    With P_g the groups, loss = mean_g CE(P_g) + `diversity` times their mean pairwise cosine (`variant` "paper").

    After a round a client draws `drawn` groups without replacement, with probabilities softmax(c / tau), c a group's
    largest cosine with a group that the server sent. It sends them in the order of the draw; the server averages the
    first ones, the second ones, and so on. The next groups from the server replace the drawn ones; a client keeps the
    others. Cosines are of flattened groups. A kept group keeps its position, and with `optimizer.reset = false` also
    its momentum; a group that moves to a free position gets the momentum there.

    Groups start as the first embeddings of "a photo of a" with a little noise, independently of the section prompt.

    The `variant` "code" follows the authors' code: in place of the cosine it adds the mean absolute difference of two
    groups' normalised class features, which makes groups similar; the remaining words follow a group's vectors,
    `[v1] [v2] of a {name}.`; the server's average is unweighted; and the draws of the first round are uniform.

    Attributes:
        groups: number G of groups of a client.
        vectors: number of context vectors of a group.
        drawn: number of groups that a client draws and sends after a round.
        diversity: weight of the comparison of groups in the loss.
        variant: the method as in the "paper" or in the authors' "code".
        tau: temperature of the draw; lower values prefer the groups most similar to the server's.
    """

    groups: int = 5
    vectors: int = 2
    drawn: int = 2
    diversity: float = 1.0
    variant: Literal["paper", "code"] = "paper"
    tau: float = 1.0

    name: ClassVar[str] = "fedmgp"
    title: ClassVar[str] = "FedMGP (text)"
    reference: ClassVar[str] = "Bo et al., NeurIPS 2025"
    learning_rates: ClassVar[LearningRates] = LearningRates(mini=0.01)
    publishes: ClassVar[frozenset[str]] = frozenset({"own"})  # each group until it is drawn
    fixed: ClassVar[frozenset[str]] = frozenset({"begun"})  # of "code": an average exists

    def __post_init__(self) -> None:
        require_from(1, _MOST_GROUPS, "method.groups", self.groups, " (the authors use 5)")
        require_from(1, _N_WORDS, "method.vectors", self.vectors, f', the words of "{_WORDS}" (the authors use 2)')
        require(1 <= self.drawn <= self.groups, "method.drawn", self.drawn, f"from 1 to method.groups = {self.groups}")
        require_from(0, MOST, "method.diversity", self.diversity, " (the authors use 1)")
        require_choices(self, "method.")
        require_from(_COLDEST, MOST, "method.tau", self.tau, " (the authors use 1)")

    @property
    def global_part(self) -> "FedMGP":
        """The method with only the server's groups."""
        return replace(self, groups=self.drawn)

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return the averaged groups (s, n, d) of n vectors; for "code" also a flag, 1 after the first average."""
        flags = {"begun": constant(task, 0.0)} if self.variant == "code" else {}
        return {"shared": self._start(task)[: self.drawn], **flags}

    def private(self, task: Task) -> Parameters:
        """Return the other groups (G - s, n, d)."""
        return {"own": self._start(task)[self.drawn :]} if self.groups > self.drawn else {}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the shared groups and the client's own."""
        kinds = {"shared": Kind.GLOBAL, "own": Kind.LOCAL}
        return tuple(Prompt(kind, self._worded(task, params[name])) for name, kind in kinds.items() if name in params)

    def _worded(self, task: Task, groups: Tensor) -> Tensor:
        """Append to groups (..., n, d) the words that the variant keeps."""
        if self.variant == "paper":
            return groups
        words = task.word_vectors(_WORDS)[self.vectors :].to(groups.dtype)
        return torch.cat([groups, words.expand(*groups.shape[:-2], *words.shape)], dim=-2)

    def terms(
        self, task: Task, params: Parameters, received: Parameters, batch: Batch, classes: Tensor
    ) -> Sequence[Tensor]:
        """Return the mean cross-entropy of the groups and the comparison of groups."""
        alone = classes.flatten(0, 1).unsqueeze(1)  # (CG, 1, K, e)
        pooled, labels = (x.repeat_interleave(self.groups, 0) for x in (batch.image.pooled, batch.labels))
        prior = None if batch.prior is None else batch.prior.repeat_interleave(self.groups, 0)
        scores = pooled_score(pooled, alone)
        each = cross_entropy(scores, labels, task.logit_scale, apart=batch.apart, prior=prior)  # (CG,)
        between = _cosine(_groups(params)) if self.variant == "paper" else _distance(classes)
        return [each.unflatten(0, (-1, self.groups)).mean(1), self.diversity * between]

    def upload(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """Return the drawn groups, in the order of the draw."""
        return {"shared": _rows(_groups(params), self._order(params, received, draws)[:, : self.drawn])}

    def keep(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """Return the groups not drawn: own ones at their positions, received ones at free positions."""
        if "own" not in params:
            return {}
        order = self._order(params, received, draws)
        gone = torch.zeros_like(order, dtype=torch.bool).scatter(1, order[:, : self.drawn], True)
        came, free = gone.split([self.drawn, self.groups - self.drawn], dim=1)
        still_here = came.int().argsort(dim=1, stable=True)  # received groups that were not drawn come first
        fill = still_here.gather(1, (free.cumsum(1) - 1).clamp_min(0))
        places = torch.arange(self.drawn, self.groups, device=order.device)
        return {"own": _rows(_groups(params), torch.where(free, fill, places))}

    def _order(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Tensor:
        """Return the order (C, G) of a draw without replacement: by log-probabilities with Gumbel noise, descending."""
        groups, common = (_directions(x).double() for x in (_groups(params), received["shared"]))
        nearest = (groups @ common.mT).amax(-1)  # (C, G)
        if self.variant == "code":
            nearest = nearest * received["begun"][:, None]
        noise = np.stack([draw.gumbel(size=self.groups) for draw in draws])
        return (nearest / self.tau + torch.from_numpy(noise).to(nearest.device)).argsort(1, descending=True)

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """Average each draw: weighted by images as in Eq. 4, for "code" unweighted."""
        if self.variant == "paper":
            return super().aggregate(server, clients, uploads, weights)
        return {**weighted_average(uploads, torch.ones_like(weights)), "begun": torch.ones_like(server["begun"])}

    def _start(self, task: Task) -> Tensor:
        return task.word_contexts(self.groups, _WORDS, _NOISE)[..., : self.vectors, :]


def _groups(params: Parameters) -> Tensor:
    """Return all groups of the clients (C, G, n, d), received ones first."""
    return torch.cat([params[name] for name in ("shared", "own") if name in params], dim=1)


def _cosine(groups: Tensor) -> Tensor:
    """Return the mean cosine (C,) of pairs of groups (C, G, ...)."""
    directions, n = _directions(groups), groups.shape[1]
    cosines = directions @ directions.mT
    return (cosines.sum((1, 2)) - cosines.diagonal(dim1=1, dim2=2).sum(1)) / max(n * (n - 1), 1)


def _distance(classes: Tensor) -> Tensor:
    """Return the mean absolute difference (C,) of pairs of groups' normalised class features (C, G, K, e).

    In ascending order, number i of n is the larger one in i pairs and the smaller one in n - 1 - i.
    """
    n = classes.shape[1]
    ordered = F.normalize(classes, dim=-1).sort(dim=1).values.mean((2, 3))  # (C, G)
    signs = torch.arange(1 - n, n, 2, device=classes.device, dtype=classes.dtype)
    return ordered @ signs / max(n * (n - 1) / 2, 1)


def _directions(groups: Tensor) -> Tensor:
    """Flatten and normalise groups (C, G, ...): (C, G, m)."""
    return F.normalize(groups.flatten(2), dim=-1)


def _rows(groups: Tensor, at: Tensor) -> Tensor:
    """Select the groups `at` (C, n) of each client."""
    return groups[torch.arange(len(groups), device=groups.device)[:, None], at]
