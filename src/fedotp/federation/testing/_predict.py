"""Predictor of C clients, common to simulations (many clients), sites and classifiers (one)."""

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
    """The classifiers of C clients, with encoded prompts.

    Attributes:
        params: (C, ...) the clients' parameters, by the method's names.
        classes: (C, N, K, e) class features of length 1.
        kinds: (N,) kinds of the prompts.
        memory: the clients' training images, for methods with `uses_memory`.
        prior: (C, K), added to log-probabilities: a multiple of the logarithms of the clients' class frequencies; None
            for none.
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
        """Encode the prompts of `params` (C, ...); `n_clients` is C, which empty `params` do not determine.

        `derived` (C, ...) is the result of the method's `derived`, if already known.
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
        """Return the predictor of some clients, in the given order."""
        params = {name: value[at] for name, value in self.params.items()}
        memory = None if self.memory is None else self.memory.rows(at)
        prior = None if self.prior is None else self.prior[at]
        return replace(self, params=params, classes=self.classes[at], memory=memory, prior=prior)

    # Prediction --------------------------------------------------------------------------------------------

    @torch.no_grad()
    def scores(self, image: ImageFeatures, padded: Tensor | None = None) -> Tensor:
        """Compute scores (C, B, K) of images, pooled (C, B, e) and tokens (C, B, V, e); `padded` (C, B) is padding."""
        unknown = torch.full(image.pooled.shape[:2], -1, device=image.pooled.device)
        batch = Batch(image, unknown, memory=self.memory, padded=padded)
        return self.method.score(self.task, self.params, batch, self.classes)

    def log_probabilities(self, scores: Tensor) -> Tensor:
        """Compute log-probabilities (C, B, K) from scores and the prior (Eq. 1 and 10), in float64."""
        logits = scores.double() * self.task.logit_scale.double().exp()
        return (logits if self.prior is None else logits + self.prior[:, None]).log_softmax(-1)

    @torch.no_grad()
    def judge(self, image: ImageFeatures, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return predicted classes (C, B) of images and losses (C, B) for `labels` (C, B), arbitrary for -1."""
        scores = self.scores(image, labels < 0)
        found = self.log_probabilities(scores)
        loss = -found.gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1)
        return (scores if self.prior is None else found).argmax(-1), loss

    @property
    def shown(self) -> list[int]:
        """Indices of the client's own prompts: all except those of other clients."""
        return [n for n, kind in enumerate(self.kinds) if kind != Kind.OTHERS]

    # Plans -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def similarity(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Compute cosines (C, B, V, N) of patches (C, B, V, e) and prompts of each image's class `labels` (C, B)."""
        clients = torch.arange(len(self), device=labels.device)[:, None]
        own = self.classes.transpose(1, 2)[clients, labels]  # (C, B, N, e)
        alone = similarity(tokens.flatten(0, 1)[:, None], own.flatten(0, 1)[:, :, None])  # (CB, 1, 1, V, N)
        return alone[:, 0, 0].unflatten(0, labels.shape)

    @property
    def matching(self) -> Matching:
        """The method's rule of matching."""
        return self.method.matching

    @torch.no_grad()
    def plan(self, similar: Tensor, image: ImageFeatures, matching: Matching | None = None) -> Tensor:
        """Compute transport plans (C, B, V, N) of images with `similarity` `similar` (C, B, V, N).

        `matching` replaces the method's rule.
        """
        rule = self.task.rule(matching or self.matching)
        weights = self.method.weights(self.task, self.params, image, self.classes)
        return rule.plan(similar, weights)

    # Copies ------------------------------------------------------------------------------------------------

    def with_matching(self, matching: Matching) -> "Predictor":
        """Return a copy with another rule."""
        options = {"rule": matching.rule, "reg": matching.reg, "mass": matching.mass}
        return replace(self, method=self.method.adjusted(**options))

    def with_mass(self, mass: float) -> "Predictor":
        """Return a copy with another transported share of the mass."""
        if not self.matching.has_mass:
            rule = f" with rule {self.matching.rule}" if self.matching.has_plan else ""
            raise FedotpError(f"{self.method.title}{rule} has no option mass: only unbalanced transport has")
        return replace(self, method=self.method.adjusted(mass=mass))

    def with_dial(self, dial: Dial) -> "Predictor":
        """Return a copy with another division of the mass between global (dial 0) and local prompts (1)."""
        return replace(self, method=self.method.adjusted(dial=dial))

    def with_task(self, task: Task) -> "Predictor":
        """Return a copy for another task, for example with other classes."""
        return Predictor.of(self.method, task, self.params, len(self), memory=self.memory)


# Images on the GPU: the text tower and each batch are CUDA graphs --------------------------------------------


class _Buffers:
    """Parameters of C clients and their current batch, in fixed tensors; shared parameters have one row."""

    def __init__(
        self, params: Parameters, n_clients: int, width: int, device: torch.device, prior: Tensor | None
    ) -> None:
        self.n_clients = n_clients
        self.prior = None if prior is None else prior.clone()
        self.params = {name: _once(value).clone() for name, value in params.items()}
        self.rows = torch.zeros(n_clients, width, dtype=torch.long, device=device)
        self.crops = torch.zeros(n_clients, dtype=torch.long, device=device)

    def load(self, params: Parameters, order: Tensor, prior: Tensor | None) -> None:
        """Load parameters (C, ...) and the class prior (C, K) into the tensors, with clients in this `order` (C,)."""
        if self.prior is not None and prior is not None:
            self.prior.copy_(prior[order])
        for name, value in self.params.items():
            value.copy_(_once(params[name]) if len(value) == 1 else params[name][order])

    def expanded(self) -> Parameters:
        """Return the parameters of all clients (C, ...)."""
        return {name: value.expand(self.n_clients, *value.shape[1:]) for name, value in self.params.items()}


class ResidentTester:
    """Prediction by replaying CUDA graphs; work that cannot be captured uses the ordinary path."""

    def __init__(self, method: Method, task: Task, images: ResidentImages, batch_size: int) -> None:
        self._method = method
        self._task = task
        self._images = images
        self._batch_size = batch_size
        self._buffers: dict[object, _Buffers] = {}
        self._predictors: Recordings[Predictor] = Recordings()
        self._judged: Recordings[tuple[Tensor, Tensor]] = Recordings()

    @torch.no_grad()
    def predict(
        self, params: Parameters, order: Tensor, batches: Sequence[Ints], prior: Tensor | None
    ) -> tuple[list[Tensor], list[Tensor]] | None:
        """Return classes and losses (A, B) of each of the `batches` (A, B), of the clients of `params` in `order`.

        `prior` (C, K) is in the order of `params`; a tester must always get one, or never. Returns None if the work
        cannot be captured.
        """
        if not params:
            return None  # zero-shot CLIP
        params = params | self._method.derived(self._task, params, None)  # may synchronise with the GPU
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
        batch = self._images.batch(buffers.rows[:n], buffers.crops[:n], self._task, self._method.needs)
        return predictor.rows(slice(n)).judge(batch.image, batch.labels)


def _once(value: Tensor) -> Tensor:
    """Return one row of a tensor that is shared by all clients, all rows of others."""
    return value[:1] if len(value) > 1 and value.stride(0) == 0 else value
