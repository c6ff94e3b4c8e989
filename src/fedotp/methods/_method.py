"""What a method of federated prompt learning declares, and what other code may ask of it.

One round, for C clients side by side (every tensor a client handles has the client axis in front):

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
"""Where a method's own learning rate was found, as `optimizer.lr` may name it."""
OptimizerName = Literal["sgd", "adam", "adamw"]
Dial = float | Literal["confidence"]
"""The share of the local prompts, from 0 (global ones only) to 1; "confidence": each image's own."""


_TRANSPORT = "its images are matched as a whole, without transport"
_ADJUSTED = {
    **dict.fromkeys(("rule", "reg", "mass"), _TRANSPORT),
    "dial": "it does not weigh global against local prompts",
}


class LearningRates(NamedTuple):
    """The learning rates of a method: its paper's, and what did best on the bundled backbone, on splits not reported.

    `mini` is constant; `falling` begins a cosine, and is as `mini` where None was measured (recipes/field/rates.csv and
    recipes/demo/choice.csv).
    """

    paper: float = 0.001
    mini: float = 0.1
    falling: float | None = None

    def at(self, rate: Rate) -> float:
        """The one that was found there."""
        return {"paper": self.paper, "mini": self.mini, "falling": self.falling or self.mini}[rate]


@dataclass(frozen=True)
class Method(ABC):
    """A method: its options are its fields, everything else is what it declares here.

    A subclass gives its parameters (`shared`, `private`: tensors of any shape, scalars too), its `prompts` and, where
    it differs from the defaults, its matching, its score, its penalty and its server. `name` is what a configuration
    calls it, `title` what a table calls it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reference: ClassVar[str]
    optimizer: ClassVar[OptimizerName] = "sgd"
    """What its clients train with where `optimizer.name` does not say; `learning_rates` are for it."""
    learning_rates: ClassVar[LearningRates] = LearningRates()
    """What `optimizer.lr` is where it is no number."""
    uses_memory: ClassVar[bool] = False
    prior: ClassVar[float] = 0.0
    """Strength of the class prior where `evaluation.prior` does not say."""
    publishes: ClassVar[frozenset[str]] = frozenset()
    """Names of kept parameters that are also sent; empty unless the method needs every client's own at the server."""

    # What it is --------------------------------------------------------------------------------------------

    @property
    def matching(self) -> Matching:
        """The rule that turns image features and class features into scores; plans and a mass follow from it."""
        return Matching("pooled")

    @property
    def adjustable(self) -> Mapping[str, tuple[str, object]]:
        """Options that may change after training, by their usual names: the field, and the present value.

        The usual names are `rule`, `reg` and `mass` of transport, and `dial`, the share of the local prompts.
        """
        return {}

    def adjusted(self, **options: object) -> "Method":
        """The same method with other values of `adjustable` options."""
        known = self.adjustable
        for name in options:
            if name not in known:
                raise FedotpError(f"{self.title} has no {name} to choose: {_ADJUSTED[name]}")
        return replace(self, **{known[name][0]: value for name, value in options.items()})

    def side_by_side(self, others: Sequence["Method"]) -> "tuple[Method, list[Parameters]] | None":
        """One method for the clients of this and of `others`, in runs that are trained as one; None: it takes several.

        With it, what is to be added to the parameters (no client axis) that the clients of each of them receive.
        """
        return (self, [{} for _ in (self, *others)]) if all(other == self for other in others) else None

    @property
    def bound_to_classes(self) -> str:
        """Why what was learned cannot be used with other class names, in a sentence; "" where it can."""
        return ""

    @property
    def learns(self) -> bool:
        """Whether it declares parameters: there is nothing to train otherwise."""
        return type(self).shared is not Method.shared or type(self).private is not Method.private

    @property
    def needs(self) -> frozenset[Need]:
        """What it must see of an image; V is 0 for images whose tokens are not needed."""
        return frozenset({Need.TOKENS if self.matching.has_plan else Need.POOLED})

    @property
    def couples_images(self) -> bool:
        """Whether the loss of an image depends on the other images of its batch: then it cannot be made private."""
        return False

    @property
    def fixed(self) -> frozenset[str]:
        """Names of parameters that a client uses but does not train, and so does not send back."""
        return frozenset()

    @property
    def rate(self) -> Mapping[str, float]:
        """Factors on the learning rate, by the parameter's name; 1 where none is given."""
        return {}

    def own_lr(self, rate: Rate) -> float:
        """Its learning rate where `optimizer.lr` is a word."""
        return self.learning_rates.at(rate)

    @property
    def closed_form_rounds(self) -> int:
        """Rounds, of all clients, in which `statistics` of images replace gradient steps; 0 if it takes such steps."""
        return 0

    @property
    def in_closed_form(self) -> bool:
        """Whether it takes no gradient steps."""
        return self.closed_form_rounds > 0

    @property
    def finetune_epochs(self) -> int | None:
        """Epochs a client trains its copy before it predicts; 0: none, None: as many as in a round."""
        return 0

    @property
    def global_part(self) -> "Method | None":
        """The method of a client that has only what the server sends to a newcomer; None where that predicts nothing.

        It predicts with `deployed(send(server, None, 1), {})`.
        """
        return None

    # Parameters --------------------------------------------------------------------------------------------

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """What the server holds at the start; no client axis."""
        return {}

    def private(self, task: Task) -> Parameters:
        """What each client holds at the start and keeps between rounds; no client axis."""
        return {}

    def untrained(self, task: Task) -> Parameters:
        """What a client would predict with before any training: (1, ...)."""
        private = {name: value[None] for name, value in self.private(task).items()}
        return self.deployed(self.send(self.shared(task, 1), None, 1), private)

    def knows_clients(self, task: Task) -> bool:
        """Whether the server keeps something of every client, by its number."""
        one, two = (self.shared(task, n) for n in (1, 2))
        return any(value.shape != two[name].shape for name, value in one.items())

    # Client ------------------------------------------------------------------------------------------------

    def start(self, received: Parameters, private: Parameters) -> Parameters:
        """The parameters (C, ...) a client trains in a round: by default all it received and all its own."""
        return {**received, **private}

    def deployed(self, received: Parameters, private: Parameters) -> Parameters:
        """The parameters (C, ...) a client predicts with: by default those a round would start from."""
        return self.start(received, private)

    @abstractmethod
    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """The prompts that `params` (C, ...) make, and what they are."""

    def training_prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """The prompts that a training step encodes, where these are others than those that predict."""
        return self.prompts(task, params)

    def kinds(self, task: Task, params: Parameters) -> tuple[Kind, ...]:
        """What each of the N prompts is: (N,)."""
        return kinds_of(self.prompts(task, params))

    def derived(self, task: Task, params: Parameters, own_classes: Tensor | None) -> Parameters:
        """What follows from `params` (C, ...) without being trained, under other names: (C, ...).

        It is computed once, without gradient, before the steps of a round and before predictions. `class_features`
        finds it among its `params`, in training so do `score` and `penalty`; it is never sent nor kept. `own_classes`
        (C, K) are true for those a client has images of to train on, all if it has none; None stands for predictions.
        """
        return {}

    def weights(self, task: Task, params: Parameters, image: ImageFeatures, classes: Tensor) -> Tensor | None:
        """How much each prompt counts, summing to 1: (N,), (C, N) or, where images differ, (C, B, N); None: all alike.

        `classes` are the class features (C, N, K, e).
        """
        return None

    def class_features(self, task: Task, params: Parameters, prompts: Sequence[Prompt] | None = None) -> Tensor:
        """Class features (C, N, K, e) of `prompts`, those that predict if not given; (1, N, K, e) for all clients.

        Only their directions may matter to `score`: for prediction they are brought to length 1 once.
        """
        shown = self.prompts(task, params) if prompts is None else prompts
        return task.features(*(prompt.context for prompt in shown))

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        """Scores (C, B, K) of images for class features (C, N, K, e): by default the matching's."""
        weights = self.weights(task, params, batch.image, classes)
        return task.rule(self.matching)(batch.image, classes, weights, batch.counted)

    def penalty(self, task: Task, params: Parameters, received: Parameters, classes: Tensor) -> Tensor | None:
        """What is added to the cross-entropy of each client (C,); `classes` are its class features (C, N, K, e)."""
        return None

    def loss(self, task: Task, params: Parameters, received: Parameters, batch: Batch) -> Tensor:
        """The objective of each client (C,) on a batch: the sum of `objective`."""
        fit, *penalties = self.objective(task, params, received, batch)
        return sum(penalties, fit)

    def objective(self, task: Task, params: Parameters, received: Parameters, batch: Batch) -> list[Tensor]:
        """What the loss is made of: the method's `terms`, and KgCoOp's penalty where `prompt.kgcoop` asks for it."""
        prompts = self.training_prompts(task, params)
        classes = self.class_features(task, params, prompts)
        kept = [forgotten(task, classes, kinds_of(prompts))] if task.prompt.kgcoop else []
        return [*self.terms(task, params, received, batch, classes), *kept]

    def terms(
        self, task: Task, params: Parameters, received: Parameters, batch: Batch, classes: Tensor
    ) -> Sequence[Tensor]:
        """The objective from class features (C, N, K, e) of `training_prompts`: Eq. 2, then the penalty, if any.

        The first is what the images say, their mean (C,) or, with `batch.apart`, each image's own (C, B), which no
        other image may change. The others (C,) do not look at images. A method with another objective has it here.
        """
        fit = self._fit(task, batch, self.score(task, params, batch, classes))
        penalty = self.penalty(task, params, received, classes)
        return [fit] if penalty is None else [fit, penalty]

    @staticmethod
    def _fit(task: Task, batch: Batch, scores: Tensor) -> Tensor:
        """The cross-entropy of scores (C, B, K) with the labels of a batch, as `terms` begin."""
        return cross_entropy(scores, batch.labels, task.logit_scale, apart=batch.apart, prior=batch.prior)

    def statistics(self, task: Task, params: Parameters, batch: Batch) -> Parameters:
        """Sums (C, ...) over the images of a batch, by names of their own, of a method `in_closed_form`.

        `params` (C, ...) are what a round starts from.
        """
        return {}

    def sensitivity(self, task: Task) -> float:
        """The most by which one image moves the `statistics`: the length of its share in all sums together."""
        raise NotImplementedError(f"{self.title} makes no sums")

    def settled(self, params: Parameters, means: Parameters, n_images: Tensor) -> Parameters:
        """What a client of a method `in_closed_form` has after a round (C, ...), to upload, keep and predict with.

        It had `params`; `means` (C, ...) are those of its `statistics` over its `n_images` (C,).
        """
        return params | means

    def leaves(self, params: Parameters, names: Sequence[str]) -> Parameters:
        """What a step differentiates by (C, ...) to train the parameters `names`: by default these themselves.

        A method that trains by factors of a parameter gives them under other names, made of `params` without
        gradient. `terms` find them among their `params`, and `gradients` says what follows.
        """
        return {name: params[name] for name in names}

    def gradients(self, leaves: Parameters, found: Parameters) -> Parameters:
        """The gradients (C, ...) of the parameters that are trained, from those `found` of `leaves`."""
        return found

    def learns_prompts(self, task: Task) -> bool:
        """Whether prompts are among what it learns."""
        return bool(learned(self.kinds(task, self.untrained(task))))

    def upload(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """What clients send after a round (C, ...): by default what they received and trained, and what is published.

        `draws` (C,) are the clients' own random streams, for a method that chooses what it sends.
        """
        sent = (received.keys() - self.fixed) | self.publishes
        return {name: value for name, value in params.items() if name in sent}

    def keep(self, params: Parameters, received: Parameters, draws: Sequence[np.random.Generator]) -> Parameters:
        """What of `private` clients who sent `upload` keep (C, ...) otherwise than as trained: by default nothing.

        `draws` begin as those of `upload`: the same draws here give what was chosen there.
        """
        return {}

    # Server ------------------------------------------------------------------------------------------------

    @property
    def averages(self) -> bool:
        """Whether its server makes the weighted average (Eq. 4) of what clients send, and needs no client's own."""
        return type(self).aggregate is Method.aggregate and not self.publishes

    def send(self, server: Parameters, clients: Tensor | None, n_clients: int) -> Parameters:
        """What the server sends to `n_clients` clients (C, ...): by default all it has, the same to everyone.

        `clients` (C,) are their numbers; None means that they are new to the federation.
        """
        return {name: value.expand(n_clients, *value.shape) for name, value in server.items()}

    def aggregate(self, server: Parameters, clients: Tensor, uploads: Parameters, weights: Tensor) -> Parameters:
        """The server's next parameters; `weights` (C,) are numbers of examples. By default Eq. 4."""
        return {**server, **weighted_average(uploads, weights)}


def weighted_average(uploads: Mapping[str, Tensor], weights: Tensor) -> Parameters:
    """P_g = sum_i m_i / sum_j m_j P_{g,i} (Eq. 4), in float64: uploads (C, ...), weights (C,).

    What comes in float16 is added up in float16, client by client, as the authors' code does.
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
