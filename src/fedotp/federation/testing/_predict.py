"""The one predictor: what C clients make of images. A simulator has many clients, a site and a classifier one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedotp._graphs import Recordings
from fedotp.clip import ImageFeatures
from fedotp.errors import FedotpError
from fedotp.federation._data import ResidentImages, at_least
from fedotp.federation._sampling import Ints
from fedotp.matching import Matching, similarity
from fedotp.methods import Batch, Dial, Kind, Memory, Method, Parameters, Task


@dataclass(frozen=True, eq=False)
class Predictor:
    """The classifiers of C clients, the text tower's work done.

    Attributes:
        params: (C, ...) what the clients predict with, by the method's names.
        classes: (C, N, K, e) class features of length 1.
        kinds: (N,) what the prompts are.
        memory: of the clients' training images, for methods that look them up.
        prior: (C, K) is added to the logarithms of the probabilities: a multiple of the logarithms of the clients' own
            class frequencies; None where it is not used.
    """

    method: Method
    task: Task
    params: Parameters
    classes: Tensor
    kinds: tuple[Kind, ...]
    memory: Memory | None = None
    prior: Tensor | None = None

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        method: Method,
        task: Task,
        params: Parameters,
        n_clients: int = 1,
        *,
        memory: Memory | None = None,
        prior: Tensor | None = None,
        derived: Parameters | None = None,
    ) -> "Predictor":
        """Encode the prompts that `params` (C, ...) make; `n_clients` is C, which a method without any does not say.

        `derived` (C, ...) is what the method derives from them, where that is known already.
        """
        known = params | (method.derived(task, params, None) if derived is None else derived)
        classes = F.normalize(method.class_features(task, known), dim=-1).expand(n_clients, -1, -1, -1)
        return cls(method, task, params, classes, method.kinds(task, params), memory, prior)

    def __repr__(self) -> str:
        n_prompts, n_classes = self.classes.shape[1:3]
        return f"<Predictor of {len(self)} clients: {self.method.title}, {n_prompts} prompts, {n_classes} classes>"

    def __len__(self) -> int:
        """Return the number of clients C."""
        return len(self.classes)

    def rows(self, at: Tensor | slice) -> "Predictor":
        """Some of the clients, in the order given."""
        params = {name: value[at] for name, value in self.params.items()}
        memory = None if self.memory is None else self.memory.rows(at)
        prior = None if self.prior is None else self.prior[at]
        return replace(self, params=params, classes=self.classes[at], memory=memory, prior=prior)

    # Prediction --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def scores(self, image: ImageFeatures, padded: Tensor | None = None) -> Tensor:
        """Scores (C, B, K) of images, pooled (C, B, e) and tokens (C, B, V, e); `padded` (C, B) are none."""
        unknown = torch.full(image.pooled.shape[:2], -1, device=image.pooled.device)
        batch = Batch(image, unknown, memory=self.memory, padded=padded)
        return self.method.score(self.task, self.params, batch, self.classes)

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """Logarithms of the probabilities (C, B, K) that scores and the prior mean (Eq. 1 and 10), in float64."""
        logits = scores.double() * self.task.logit_scale.double().exp()
        return (logits if self.prior is None else logits + self.prior[:, None]).log_softmax(-1)

    @torch.no_grad()
    def judge(self, image: ImageFeatures, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The predicted classes (C, B) of images, and the losses (C, B) for `labels` (C, B); -1 gives some number."""
        scores = self.scores(image, labels < 0)
        found = self.log_probabilities(scores)
        loss = -found.gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1)
        return (scores if self.prior is None else found).argmax(-1), loss

    @property
    def shown(self) -> list[int]:
        """Which of the N prompts a client is shown with: all but those of other clients."""
        return [n for n, kind in enumerate(self.kinds) if kind != Kind.OTHERS]

    # Where prompts look ------------------------------------------------------------------------------------

    @torch.no_grad()
    def similarity(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Cosines (C, B, V, N) of patches (C, B, V, e) and the prompts of one class of each image, `labels` (C, B)."""
        clients = torch.arange(len(self), device=labels.device)[:, None]
        own = self.classes.transpose(1, 2)[clients, labels]  # (C, B, N, e)
        alone = similarity(tokens.flatten(0, 1)[:, None], own.flatten(0, 1)[:, :, None])  # (CB, 1, 1, V, N)
        return alone[:, 0, 0].unflatten(0, labels.shape)

    @property
    def matching(self) -> Matching:
        """How images are matched with classes."""
        return self.method.matching

    @torch.no_grad()
    def plan(self, similar: Tensor, image: ImageFeatures, matching: Matching | None = None) -> Tensor:
        """Transport plans (C, B, V, N) of images, by the method's rule or another `matching`.

        `similar` is their `similarity` (C, B, V, N).
        """
        rule = self.task.rule(matching or self.matching)
        weights = self.method.weights(self.task, self.params, image, self.classes)
        if weights is not None and weights.dim() == 2:
            weights = weights[:, None].expand(-1, similar.shape[1], -1)
        return rule.plan(similar, weights)

    # Others of its kind ------------------------------------------------------------------------------------

    def with_matching(self, matching: Matching) -> "Predictor":
        """The same prompts under another rule."""
        options = {"rule": matching.rule, "reg": matching.reg, "mass": matching.mass}
        return replace(self, method=self.method.adjusted(**options))

    def with_mass(self, mass: float) -> "Predictor":
        """The same prompts with another share of the image transported."""
        if not self.matching.has_mass:
            rule = f" with rule {self.matching.rule}" if self.matching.has_plan else ""
            raise FedotpError(f"{self.method.title}{rule} has no mass to choose: only unbalanced transport has")
        return replace(self, method=self.method.adjusted(mass=mass))

    def with_dial(self, dial: Dial) -> "Predictor":
        """The same prompts, the mass divided between global (dial 0) and local ones (1) in another way."""
        return replace(self, method=self.method.adjusted(dial=dial))

    def with_task(self, task: Task) -> "Predictor":
        """The same prompts for another task, such as other classes."""
        return Predictor.of(self.method, task, self.params, len(self), memory=self.memory)

    def with_prior(self, prior: Tensor | None) -> "Predictor":
        """The same prompts with another class prior (C, K), or none."""
        return replace(self, prior=prior)


# Where images lie on the GPU: the text tower and each batch are recorded graphs ------------------------------


class _Buffers:
    """What C clients predict with, in tensors that stay where they are, and the batch they are asked about.

    Of parameters that are one for all clients there is one row.
    """

    def __init__(
        self, params: Parameters, n_clients: int, width: int, device: torch.device, prior: Tensor | None
    ) -> None:
        self.n_clients = n_clients
        self.prior = None if prior is None else prior.clone()
        self.params = {name: _once(value).clone() for name, value in params.items()}
        self.rows = torch.zeros(n_clients, width, dtype=torch.long, device=device)
        self.crops = torch.zeros(n_clients, dtype=torch.long, device=device)

    def load(self, params: Parameters, order: Tensor, prior: Tensor | None) -> None:
        """Put parameters (C, ...) and the class prior (C, K) into the tensors, clients in the `order` (C,) given."""
        if self.prior is not None and prior is not None:
            self.prior.copy_(prior[order])
        for name, value in self.params.items():
            value.copy_(_once(params[name]) if len(value) == 1 else params[name][order])

    def expanded(self) -> Parameters:
        """The parameters of all clients (C, ...)."""
        return {name: value.expand(self.n_clients, *value.shape[1:]) for name, value in self.params.items()}


class ResidentTester:
    """Predicts by replaying recorded graphs; what cannot be recorded is left to the plain path."""

    def __init__(self, method: Method, task: Task, images: ResidentImages, batch_size: int) -> None:
        self._method = method
        self._task = task
        self._images = images
        self._batch_size = batch_size
        self._buffers: dict[object, _Buffers] = {}
        self._predictors: Recordings[Predictor] = Recordings(shared=True)
        self._judged: Recordings[tuple[Tensor, Tensor]] = Recordings(shared=True)

    @torch.no_grad()
    def predict(
        self, params: Parameters, order: Tensor, batches: Sequence[Ints], prior: Tensor | None
    ) -> tuple[list[Tensor], list[Tensor]] | None:
        """Classes and losses (A, B) of each of the `batches` (A, B), whose clients are those of `params` in `order`.

        `prior` (C, K) is theirs, in the order of `params`; one tester is always given one, or never.
        None where it cannot be recorded.
        """
        if not params:
            return None  # nothing to record: the captions of zero-shot CLIP
        params = params | self._method.derived(self._task, params, None)  # it may wait for the GPU
        n_clients = len(order)
        width = max(rows.shape[1] for rows in batches)
        shapes = tuple((name, value.shape, value.stride(0) == 0) for name, value in params.items())
        key = (n_clients, width, shapes)
        if key not in self._buffers:
            self._buffers[key] = _Buffers(params, n_clients, width, self._task.device, prior)
        buffers = self._buffers[key]
        buffers.load(params, order, prior)
        encode = partial(
            Predictor.of, self._method, self._task, buffers.expanded(), n_clients, prior=buffers.prior, derived={}
        )
        predictor = self._predictors.get(key, encode)
        if predictor is None:
            return None
        sizes = [at_least(len(rows), n_clients) for rows in batches]
        judge = partial(self._judge, buffers, predictor.result)
        judged = {n: self._judged.get((key, n), partial(judge, n)) for n in {*sizes}}
        if None in judged.values():
            return None
        predictor()
        planned = np.full((len(batches), n_clients, width), -1, np.int64)
        for number, rows in enumerate(batches):
            planned[number, : rows.shape[0], : rows.shape[1]] = rows
        on_device = torch.from_numpy(planned).to(self._task.device)
        classes, losses = [], []
        for number, (rows, size) in enumerate(zip(batches, sizes, strict=True)):
            buffers.rows.copy_(on_device[number])
            recorded = judged[size]
            assert recorded is not None
            found, loss = recorded()
            classes.append(found[: rows.shape[0], : rows.shape[1]].clone())
            losses.append(loss[: rows.shape[0], : rows.shape[1]].clone())
        return classes, losses

    def _judge(self, buffers: _Buffers, predictor: Predictor, n: int) -> tuple[Tensor, Tensor]:
        batch = self._images.batch(buffers.rows[:n], buffers.crops[:n], self._task.dtype, self._method.needs)
        return predictor.rows(slice(n)).judge(batch.image, batch.labels)


def _once(value: Tensor) -> Tensor:
    """One row of what is the same for all clients, all rows of anything else."""
    return value[:1] if len(value) > 1 and value.stride(0) == 0 else value
