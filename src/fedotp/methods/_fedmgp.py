"""FedMGP: several short prompts for each client, of which it draws those it shares."""

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
    """Bo et al., NeurIPS 2025, its text prompts: G groups of few vectors, which predict with their mean score.

    With P_g the groups, loss = mean_g CE(P_g) + `diversity` times their mean pairwise cosine (`variant` "paper").

    After a round a client draws `drawn` groups without replacement, with probabilities softmax(c / tau), c a group's
    largest cosine with a group that the server sent. It sends them in the order of the draw; the server averages the
    first ones, the second ones, and so on. What was drawn is overwritten by what the server sends next. So a client
    keeps the groups that it did not draw, and which they are needs no remembering. Cosines are of all numbers of a
    group. A group that stays keeps its place, with `optimizer.reset = false` also its momentum; what comes to a free
    place goes on with what is there.

    Groups start as the first embeddings of "a photo of a" with a little noise, whatever the section prompt says.

    The `variant` "code" is what the authors' code does otherwise: in place of the cosine of prompts it adds the mean
    absolute difference of two groups' class features of length 1, so groups become alike; the words that a group does
    not start as stay behind its vectors, `[v1] [v2] of a {name}.`; the server counts every client alike; and the draws
    of the first round are uniform.

    Attributes:
        groups: G, the groups of a client.
        vectors: context vectors of a group.
        drawn: groups that a client draws and sends after a round.
        diversity: weight in the loss of what compares the groups with each other.
        variant: the method as the "paper" describes it, or as the authors' "code" has it.
        tau: temperature of the draw: the smaller, the surer the groups nearest to the server's are drawn.
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
    publishes: ClassVar[frozenset[str]] = frozenset({"own"})  # each of them until it is drawn

    def __post_init__(self) -> None:
        require_from(1, _MOST_GROUPS, "method.groups", self.groups, " (the authors use 5)")
        require_from(1, _N_WORDS, "method.vectors", self.vectors, f', the words of "{_WORDS}" (the authors use 2)')
        require(1 <= self.drawn <= self.groups, "method.drawn", self.drawn, f"from 1 to method.groups = {self.groups}")
        require_from(0, MOST, "method.diversity", self.diversity, " (the authors use 1)")
        require_choices(self, "method.")
        require_from(_COLDEST, MOST, "method.tau", self.tau, " (the authors use 1)")

    @property
    def fixed(self) -> frozenset[str]:
        """Whether anything was averaged yet, which "code" must know."""
        return frozenset({"begun"} if self.variant == "code" else ())

    @property
    def global_part(self) -> "FedMGP":
        """The groups that the server sends."""
        return replace(self, groups=self.drawn)

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """The averaged groups (s, n, d) of n vectors each; of "code" also 0, or 1 after the first average."""
        flags = {"begun": constant(task, 0.0)} if self.variant == "code" else {}
        return {"shared": self._start(task)[: self.drawn], **flags}

    def private(self, task: Task) -> Parameters:
        """The other groups (G - s, n, d)."""
        return {"own": self._start(task)[self.drawn :]} if self.groups > self.drawn else {}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """The groups that everyone has, and the client's own."""
        kinds = {"shared": Kind.GLOBAL, "own": Kind.LOCAL}
        return tuple(Prompt(kind, self._worded(task, params[name])) for name, kind in kinds.items() if name in params)

    def _worded(self, task: Task, groups: Tensor) -> Tensor:
        """Groups (..., n, d) with the words behind them that the variant keeps."""
        if self.variant == "paper":
            return groups
        words = task.word_vectors(_WORDS)[self.vectors :].to(groups.dtype)
        return torch.cat([groups, words.expand(*groups.shape[:-2], *words.shape)], dim=-2)

    def terms(
        self, task: Task, params: Parameters, received: Parameters, batch: Batch, classes: Tensor
    ) -> Sequence[Tensor]:
        """Mean cross-entropy of the groups, and what compares them with each other."""
        alone = classes.flatten(0, 1).unsqueeze(1)  # (CG, 1, K, e)
        pooled, labels = (x.repeat_interleave(self.groups, 0) for x in (batch.image.pooled, batch.labels))
        prior = None if batch.prior is None else batch.prior.repeat_interleave(self.groups, 0)
        scores = pooled_score(pooled, alone)
        each = cross_entropy(scores, labels, task.logit_scale, apart=batch.apart, prior=prior)  # (CG,)
        between = _cosine(_groups(params)) if self.variant == "paper" else _distance(classes)
        return [each.unflatten(0, (-1, self.groups)).mean(1), self.diversity * between]

    def upload(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """The drawn groups, in the order of the draw."""
        return {"shared": _rows(_groups(params), self._order(params, received, draws)[:, : self.drawn])}

    def keep(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """The groups that were not drawn: its own at their places, and at the free ones those that came to it."""
        if "own" not in params:
            return {}
        order = self._order(params, received, draws)
        gone = torch.zeros_like(order, dtype=torch.bool).scatter(1, order[:, : self.drawn], True)
        came, free = gone.split([self.drawn, self.groups - self.drawn], dim=1)
        still_here = came.int().argsort(dim=1, stable=True)  # those that came and are not gone, first
        fill = still_here.gather(1, (free.cumsum(1) - 1).clamp_min(0))
        places = torch.arange(self.drawn, self.groups, device=order.device)
        return {"own": _rows(_groups(params), torch.where(free, fill, places))}

    def _order(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Tensor:
        """The groups (C, G) in the order in which they would be drawn.

        The largest of log-probabilities with Gumbel noise is a draw, the second largest the next one, without
        replacement.
        """
        groups, common = (_directions(x).double() for x in (_groups(params), received["shared"]))
        nearest = (groups @ common.mT).amax(-1)  # (C, G)
        if self.variant == "code":
            nearest = nearest * received["begun"][:, None]
        noise = np.stack([draw.gumbel(size=self.groups) for draw in draws])
        return (nearest / self.tau + torch.from_numpy(noise).to(nearest.device)).argsort(1, descending=True)

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """Draw by draw: weighted by images as Eq. 4, in the authors' code every client alike."""
        if self.variant == "paper":
            return super().aggregate(server, clients, uploads, weights)
        return {**weighted_average(uploads, torch.ones_like(weights)), "begun": torch.ones_like(server["begun"])}

    def _start(self, task: Task) -> Tensor:
        return task.word_contexts(self.groups, _WORDS, _NOISE)[..., : self.vectors, :]


def _groups(params: Parameters) -> Tensor:
    """All groups of the clients (C, G, n, d), those that came from the server first."""
    return torch.cat([params[name] for name in ("shared", "own") if name in params], dim=1)


def _cosine(groups: Tensor) -> Tensor:
    """The mean cosine (C,) of two of the groups (C, G, ...)."""
    directions, n = _directions(groups), groups.shape[1]
    cosines = directions @ directions.mT
    return (cosines.sum((1, 2)) - cosines.diagonal(dim1=1, dim2=2).sum(1)) / max(n * (n - 1), 1)


def _distance(classes: Tensor) -> Tensor:
    """The mean absolute difference (C,) of two groups' class features, (C, G, K, e) brought to length 1.

    In order, number i of n is the larger one in i pairs and the smaller one in n - 1 - i.
    """
    n = classes.shape[1]
    ordered = F.normalize(classes, dim=-1).sort(dim=1).values.mean((2, 3))  # (C, G)
    signs = torch.arange(1 - n, n, 2, device=classes.device, dtype=classes.dtype)
    return ordered @ signs / max(n * (n - 1) / 2, 1)


def _directions(groups: Tensor) -> Tensor:
    """Groups (C, G, ...) as vectors of length 1, (C, G, m)."""
    return F.normalize(groups.flatten(2), dim=-1)


def _rows(groups: Tensor, at: Tensor) -> Tensor:
    """Some of the groups of each client, `at` (C, n)."""
    return groups[torch.arange(len(groups), device=groups.device)[:, None], at]
