"""Interface of a method of federated prompt learning.

One round of C clients side by side (tensors of clients have the client axis first):

    server ── send ──> received ─┐                                       ┌─ upload ──> aggregate ──> server
                                 ├─ start ──> params ── gradient steps ──┤
    private (on the client) ─────┘                                       └─ keep ──> private, on the client
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.errors import FedotpError
from fedotp.matching import Matching, cross_entropy
from fedotp.methods._parts import Batch, Kind, Need, Parameters, Prompt, forgotten, kinds_of, learned
from fedotp.methods._task import Task

Rate = Literal["paper", "mini", "falling"]
"""Sources of a method's own learning rate, as values of `optimizer.lr`."""
OptimizerName = Literal["sgd", "adam", "adamw"]
Dial = float | Literal["confidence"]
"""The share of the local prompts, from 0 (global ones only) to 1; "confidence": computed for each image."""


_FIXED = {
    **dict.fromkeys(("rule", "reg", "mass"), "it does not use transport"),
    "dial": "it does not weight global and local prompts",
}


class LearningRates(NamedTuple):
    """Learning rates of a method: its paper's, and the best ones on the bundled backbone, on unreported splits.

    `mini` is constant, `falling` the start of a cosine; None for `mini` (recipes/field/rates.csv, demo/choice.csv).
    """

    paper: float = 0.001
    mini: float = 0.1
    falling: float | None = None


@dataclass(frozen=True)
class Method(ABC):
    """A method of federated prompt learning, whose options are its fields.

    A subclass defines its parameters (`shared`, `private`: tensors of any shape, also scalars), its `prompts` and, if
    they differ from the defaults, its matching, score, penalty and aggregation. `name` is its name in configurations,
    `title` its name in tables.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    optimizer: ClassVar[OptimizerName] = "sgd"
    """Optimizer for `optimizer.name` = "own"; `learning_rates` are for it."""
    learning_rates: ClassVar[LearningRates] = LearningRates()
    """Values of `optimizer.lr` if it is not a number."""
    uses_memory: ClassVar[bool] = False
    prior: ClassVar[float] = 0.0
    """Factor of the class prior for `evaluation.prior` = "method"."""
    publishes: ClassVar[frozenset[str]] = frozenset()
    """Names of private parameters that are also sent, for methods whose server stores every client's own."""
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Names of parameters that a client uses but neither trains nor sends back."""

    # Properties --------------------------------------------------------------------------------------------

    @property
    def matching(self) -> Matching:
        """Rule that computes scores from image features and class features."""
        return Matching("pooled")

    @property
    def adjustable(self) -> Mapping[str, tuple[str, object]]:
        """Options that can change after training: by common name, the field and the current value.

        The common names are `rule`, `reg` and `mass` of transport, and `dial`, the share of the local prompts.
        """
        return {}

    def adjusted(self, **options: object) -> "Method":
        """Return a copy with other values of `adjustable` options."""
        known = self.adjustable
        for name in options:
            if name not in known:
                raise FedotpError(f"{self.title} has no option {name}: {_FIXED[name]}")
        return replace(self, **{known[name][0]: value for name, value in options.items()})

    @property
    def bound_to_classes(self) -> str:
        """Reason why the learned parameters cannot be used with other class names; "" if they can."""
        return ""

    @property
    def learns(self) -> bool:
        """True if the method has parameters to train."""
        return type(self).shared is not Method.shared or type(self).private is not Method.private

    @property
    def needs(self) -> frozenset[Need]:
        """Image features that the method uses; V is 0 for images whose tokens are not needed."""
        return frozenset({Need.TOKENS if self.matching.has_plan else Need.POOLED})

    @property
    def couples_images(self) -> bool:
        """True if the loss of an image depends on other images of its batch, which rules out example privacy."""
        return False

    @property
    def rate(self) -> Mapping[str, float]:
        """Factors of the learning rate by parameter name; 1 by default."""
        return {}

    def own_lr(self, rate: Rate) -> float:
        """Return the learning rate for a source in `optimizer.lr`."""
        rates = self.learning_rates
        return {"paper": rates.paper, "mini": rates.mini, "falling": rates.falling or rates.mini}[rate]

    @property
    def closed_form_rounds(self) -> int:
        """Number of rounds, of all clients, in which `statistics` replace gradient steps; 0 with gradient steps."""
        return 0

    @property
    def in_closed_form(self) -> bool:
        """True if the method takes no gradient steps."""
        return self.closed_form_rounds > 0

    @property
    def finetune_epochs(self) -> int | None:
        """Epochs of fine-tuning before a client predicts; None for as many as in a round."""
        return 0

    @property
    def global_part(self) -> "Method | None":
        """Method for predictions with the server's parameters alone; None if they cannot predict.

        It predicts with `deployed(send(server, None, 1), {})`.
        """
        return None

    # Parameters --------------------------------------------------------------------------------------------

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return the server's initial parameters, without a client axis."""
        return {}

    def private(self, task: Task) -> Parameters:
        """Return a client's initial private parameters, without a client axis."""
        return {}

    def untrained(self, task: Task) -> Parameters:
        """Return the parameters (1, ...) with which a client predicts before any training."""
        return self.deployed(*self._received_and_private(task))

    def initial(self, task: Task) -> Parameters:
        """Return the parameters (1, ...) with which a client begins its first round."""
        return self.start(*self._received_and_private(task))

    def _received_and_private(self, task: Task) -> tuple[Parameters, Parameters]:
        private = {name: value[None] for name, value in self.private(task).items()}
        return self.send(self.shared(task, 1), None, 1), private

    def knows_clients(self, task: Task) -> bool:
        """True if the server stores parameters of every client."""
        one, two = (self.shared(task, n) for n in (1, 2))
        return any(value.shape != two[name].shape for name, value in one.items())

    # Client ------------------------------------------------------------------------------------------------

    def start(self, received: Parameters, private: Parameters) -> Parameters:
        """Return the parameters (C, ...) at the start of a round: by default all received and all private ones."""
        return {**received, **private}

    def deployed(self, received: Parameters, private: Parameters) -> Parameters:
        """Return the parameters (C, ...) for predictions: by default those at the start of a round."""
        return self.start(received, private)

    @abstractmethod
    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the prompts from `params` (C, ...), with their kinds."""

    def training_prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the prompts encoded in a training step: by default those that predict."""
        return self.prompts(task, params)

    def kinds(self, task: Task, params: Parameters) -> tuple[Kind, ...]:
        """Return the kinds of the N prompts: (N,)."""
        return kinds_of(self.prompts(task, params))

    def derived(self, task: Task, params: Parameters, own_classes: Tensor | None) -> Parameters:
        """Compute further values (C, ...) from `params` (C, ...), under new names.

        They are computed once, without gradient, before the steps of a round and before predictions, and are neither
        sent nor stored. `class_features` finds them in its `params`, in training also `score` and `penalty`.
        `own_classes` (C, K) is true for classes of the client's training images, for all if it has none; None in
        predictions.
        """
        return {}

    def weights(self, task: Task, params: Parameters, image: ImageFeatures, classes: Tensor) -> Tensor | None:
        """Return weights of prompts that sum to 1: (N,) or, different for images, (C, B, N); None for equal.

        `classes` are the class features (C, N, K, e).
        """
        return None

    def class_features(self, task: Task, params: Parameters, prompts: Sequence[Prompt] | None = None) -> Tensor:
        """Encode `prompts`, by default those that predict: class features (C, N, K, e), or (1, N, K, e) if shared.

        `score` must use only their directions: for predictions they are normalised once.
        """
        shown = self.prompts(task, params) if prompts is None else prompts
        return task.features(*(prompt.context for prompt in shown))

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        """Compute scores (C, B, K) of images for class features (C, N, K, e): by default by `matching`."""
        weights = self.weights(task, params, batch.image, classes)
        return task.rule(self.matching)(batch.image, classes, weights, batch.counted)

    def penalty(self, task: Task, params: Parameters, received: Parameters, classes: Tensor) -> Tensor | None:
        """Return a penalty (C,) to add to the cross-entropy; `classes` are the class features (C, N, K, e)."""
        return None

    def loss(self, task: Task, params: Parameters, received: Parameters, batch: Batch) -> Tensor:
        """Compute the loss (C,) of each client on a batch: the sum of `objective`."""
        fit, *penalties = self.objective(task, params, received, batch)
        return sum(penalties, fit)

    def objective(self, task: Task, params: Parameters, received: Parameters, batch: Batch) -> list[Tensor]:
        """Compute the terms of the loss: the method's `terms`, and KgCoOp's penalty if `prompt.kgcoop` is set."""
        prompts = self.training_prompts(task, params)
        classes = self.class_features(task, params, prompts)
        kept = [forgotten(task, classes, kinds_of(prompts))] if task.prompt.kgcoop else []
        return [*self.terms(task, params, received, batch, classes), *kept]

    def terms(
        self, task: Task, params: Parameters, received: Parameters, batch: Batch, classes: Tensor
    ) -> Sequence[Tensor]:
        """Compute the objective from class features (C, N, K, e) of `training_prompts`: Eq. 2, then any penalty.

        The first term is the mean over images (C,) or, with `batch.apart`, the loss of each image (C, B), which must
        not depend on other images. The others (C,) must not depend on images. A method with another objective
        overrides this.
        """
        fit = self._fit(task, batch, self.score(task, params, batch, classes))
        penalty = self.penalty(task, params, received, classes)
        return [fit] if penalty is None else [fit, penalty]

    @staticmethod
    def _fit(task: Task, batch: Batch, scores: Tensor) -> Tensor:
        """Compute the first of `terms`: the cross-entropy of scores (C, B, K) and the labels of a batch."""
        return cross_entropy(scores, batch.labels, task.logit_scale, apart=batch.apart, prior=batch.prior)

    def statistics(self, task: Task, params: Parameters, batch: Batch) -> Parameters:
        """Compute sums (C, ...) over the images of a batch, under new names, for a method `in_closed_form`.

        `params` (C, ...) are those at the start of the round.
        """
        return {}

    def sensitivity(self, task: Task) -> float:
        """Return the maximum L2 norm of one image's contribution to all `statistics` together."""
        raise NotImplementedError(f"{self.title} has no statistics")

    def settled(self, params: Parameters, means: Parameters, n_images: Tensor) -> Parameters:
        """Return the parameters (C, ...) after a round of a method `in_closed_form`, to upload, store and predict with.

        `params` are those before it; `means` (C, ...) are the `statistics` divided by `n_images` (C,).
        """
        return params | means

    def leaves(self, params: Parameters, names: Sequence[str]) -> Parameters:
        """Return the tensors (C, ...) to differentiate by to train the parameters `names`: by default these themselves.

        A method that trains factors of a parameter returns the factors under other names, computed without gradient.
        `terms` finds them in its `params`, and `gradients` converts their gradients.
        """
        return {name: params[name] for name in names}

    def gradients(self, leaves: Parameters, found: Parameters) -> Parameters:
        """Compute the gradients (C, ...) of the trained parameters from those `found` of `leaves`."""
        return found

    def learns_prompts(self, task: Task) -> bool:
        """True if the method learns prompts."""
        return bool(learned(self.kinds(task, self.untrained(task))))

    def upload(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """Return the parameters (C, ...) that clients send: by default those received and trained, and published ones.

        `draws` (C,) are the clients' random streams, for a method that sends a random selection.
        """
        sent = (received.keys() - self.fixed) | self.publishes
        return {name: value for name, value in params.items() if name in sent}

    def keep(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """Return private parameters (C, ...) that clients store in place of the trained ones: by default none.

        `draws` start in the same state as for `upload` and so give the same selection.
        """
        return {}

    # Server ------------------------------------------------------------------------------------------------

    @property
    def averages(self) -> bool:
        """True if the server only needs the weighted average (Eq. 4) of uploads, not single ones."""
        return type(self).aggregate is Method.aggregate and not self.publishes

    def send(self, server: Parameters, clients: Tensor | None, n_clients: int) -> Parameters:
        """Return the server's message to `n_clients` clients (C, ...): by default all its parameters, the same to all.

        `clients` (C,) are their numbers; None for new clients.
        """
        return {name: value.expand(n_clients, *value.shape) for name, value in server.items()}

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """Return the server's next parameters, by default Eq. 4; `weights` (C,) are numbers of examples."""
        return {**server, **weighted_average(uploads, weights)}


def weighted_average(uploads: Mapping[str, Tensor], weights: Tensor) -> Parameters:
    """Compute P_g = sum_i m_i / sum_j m_j P_{g,i} (Eq. 4), in float64: uploads (C, ...), weights (C,).

    Uploads in float16 are summed in float16, client by client, as in the authors' code.
    """
    share = weights.double() / weights.double().sum()
    return {
        name: _half_sum(share, value)
        if value.dtype == torch.float16
        else torch.tensordot(share.to(value.device), value.double(), dims=1).to(value.dtype)
        for name, value in uploads.items()
    }


def _half_sum(share: Tensor, value: Tensor) -> Tensor:
    total = torch.zeros_like(value[0])
    for part, of_client in zip(share.tolist(), value, strict=True):
        total += of_client * part
    return total
