"""What a method of federated prompt learning declares.

One round, for C clients side by side (every tensor a client handles has the client axis in front):

    server ── send ──> received ─┐                                       ┌─ upload ──> aggregate ──> server
                                 ├─ start ──> params ── gradient steps ──┤
    private (on the client) ─────┘                                       └─ private, kept on the client
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.matching import cross_entropy, pooled_score
from fedotp.methods._task import Task

Parameters = dict[str, Tensor]


class Memory(NamedTuple):
    """The training images of C clients, padded to the longest: what a non-parametric method may look up.

    features: pooled (C, M, e) and spatial (C, M, e), the mean of the normalised patch tokens; labels (C, M), -1 where
    a client has fewer images.
    """

    pooled: Tensor
    spatial: Tensor
    labels: Tensor

    def first(self, n: int) -> "Memory":
        """Of the first n clients."""
        return Memory(self.pooled[:n], self.spatial[:n], self.labels[:n])


class Batch(NamedTuple):
    """B images of each of C clients.

    Attributes:
        image:  pooled (C, B, e) and tokens (C, B, V, e).
        labels: (C, B), -1 for padding.
        places: (C, B) position of a training image in its client's memory; None for images to be predicted.
        memory: of the clients, for methods with `uses_memory`.
    """

    image: ImageFeatures
    labels: Tensor
    places: Tensor | None = None
    memory: Memory | None = None


@dataclass(frozen=True)
class Method(ABC):
    """A method: its options are its fields, everything else is what it declares here.

    A subclass gives its parameters, its class features and, where it differs from the defaults, its score, its
    penalty and its server. `name` is what a configuration calls it, `title` what a table calls it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    uses_memory: ClassVar[bool] = False
    publishes: ClassVar[frozenset[str]] = frozenset()
    """Names of kept parameters that are also sent; empty unless the method needs every client's own at the server."""

    @property
    def finetune_epochs(self) -> int | None:
        """Epochs a client trains its copy before it predicts; 0: none, None: as many as in a round."""
        return 0

    # Parameters --------------------------------------------------------------------------------------------

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """What the server holds at the start; no client axis."""
        return {}

    def private(self, task: Task) -> Parameters:
        """What each client holds at the start and keeps between rounds; no client axis."""
        return {}

    # Client ------------------------------------------------------------------------------------------------

    def start(self, received: Parameters, private: Parameters) -> Parameters:
        """The parameters (C, ...) a client trains in a round: by default all it received and all its own."""
        return {**received, **private}

    def deployed(self, received: Parameters, private: Parameters) -> Parameters:
        """The parameters (C, ...) a client predicts with: by default those a round would start from."""
        return self.start(received, private)

    @abstractmethod
    def class_features(self, task: Task, params: Parameters) -> Tensor:
        """Class features (C, N, K, e)."""

    def score(self, batch: Batch, classes: Tensor) -> Tensor:
        """Scores (C, B, K) of images for class features (C, N, K, e); by default Eq. 1, the pooled cosine."""
        return pooled_score(batch.image.pooled, classes)

    def penalty(self, params: Parameters, received: Parameters) -> Tensor | None:
        """What is added to the cross-entropy of each client (C,)."""
        return None

    def loss(self, task: Task, params: Parameters, received: Parameters, batch: Batch) -> Tensor:
        """The objective of each client (C,) on a batch: Eq. 2 and the method's penalty."""
        scores = self.score(batch, self.class_features(task, params))
        loss = cross_entropy(scores, batch.labels, task.logit_scale)
        penalty = self.penalty(params, received)
        return loss if penalty is None else loss + penalty

    def upload(self, params: Parameters, private: Collection[str]) -> Parameters:
        """What a client sends: everything that is not among its `private` names, and what the method publishes."""
        return {name: value for name, value in params.items() if name not in private or name in self.publishes}

    # Server ------------------------------------------------------------------------------------------------

    def send(self, server: Parameters, clients: Tensor | None, n_clients: int) -> Parameters:
        """What the server sends to `n_clients` clients (C, ...): by default all it has, the same to everyone.

        `clients` (C,) are their numbers; None means that they are new to the federation.
        """
        return {name: value.expand(n_clients, *value.shape) for name, value in server.items()}

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """The server's next parameters; `weights` (C,) are numbers of examples. By default Eq. 4."""
        return {**server, **weighted_average(uploads, weights)}


def weighted_average(uploads: Mapping[str, Tensor], weights: Tensor) -> Parameters:
    """P_g = sum_i m_i / sum_j m_j P_{g,i} (Eq. 4), in float64: uploads (C, ...), weights (C,)."""
    share = weights.double() / weights.double().sum()
    return {
        name: torch.tensordot(share.to(value.device), value.double(), dims=1).to(value.dtype)
        for name, value in uploads.items()
    }
