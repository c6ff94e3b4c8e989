"""Training and evaluation where images lie on the GPU: each step and each batch is a recorded graph.

All steps of a round are made without waiting for the GPU; of an evaluation the text tower is recorded, too.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp._graphs import Recordings
from fedotp.clip import ImageFeatures
from fedotp.federation._data import HeldFeatures, Images
from fedotp.federation._predict import Predictor
from fedotp.federation._random import Ints
from fedotp.federation._steps import Optimizer, step_gradients
from fedotp.methods import Batch, Method, Need, Parameters, Task


class ResidentImages:
    """The training images of a federation, on the device that trains."""

    def __init__(self, features: HeldFeatures, labels: Ints) -> None:
        """`labels` (n,) go where the features are."""
        self.features = features
        self.labels = torch.from_numpy(labels).to(features.pooled.device)

    @classmethod
    def of(cls, images: Images, device: torch.device) -> "ResidentImages | None":
        """Of images that are held on the GPU `device`; None of others."""
        features = images.features
        if device.type != "cuda" or not isinstance(features, HeldFeatures) or features.pooled.device != device:
            return None
        return cls(features, images.labels)

    def batch(self, rows: Tensor, crops: Tensor, dtype: torch.dtype, needs: frozenset[Need]) -> Batch:
        """The images `rows` (C, B), -1 for padding, in the clients' `crops` (C,); V is 0 where nobody needs tokens."""
        at = rows.clamp_min(0)
        of = crops[:, None].expand_as(at)
        tokens = self.features.tokens if Need.TOKENS in needs else self.features.tokens[:, :, :0]
        image = ImageFeatures(self.features.pooled[of, at].to(dtype), tokens[of, at].to(dtype))
        return Batch(image, torch.where(rows < 0, -1, self.labels[at]))


class Buffers:
    """What C clients hold while they train, in tensors that stay where they are.

    `rows` (C, B), `crops` (C,) and `active` (C,) say what the next step is, `lr` (C,) how long; `total` (C,) sums the
    objective times the images it is of.
    """

    def __init__(self, params: Parameters, received: Parameters, stepper: Optimizer, width: int) -> None:
        self.params = {name: value.clone() for name, value in params.items()}
        self.received = {name: value.clone() for name, value in received.items()}
        trained = {name: self.params[name] for name in stepper.params}
        state = {name: value.clone() for name, value in stepper.state.items()}
        self.stepper = Optimizer(
            stepper.settings, trained, state, stepper.steps.clone(), stepper.rate, half=stepper.half
        )
        n, device = len(stepper.steps), stepper.steps.device
        self.rows = torch.zeros(n, width, dtype=torch.long, device=device)
        self.crops = torch.zeros(n, dtype=torch.long, device=device)
        self.active = torch.ones(n, dtype=torch.bool, device=device)
        self.lr = torch.zeros(n, dtype=torch.float64, device=device)
        self.total = torch.zeros(n, dtype=torch.float64, device=device)

    def load(self, params: Parameters, received: Parameters, stepper: Optimizer, lr: float | Tensor) -> None:
        """Put a round's beginning into the tensors."""
        pairs = [(self.params, params), (self.received, received), (self.stepper.state, stepper.state)]
        for mine, given in pairs:
            for name, value in mine.items():
                value.copy_(given[name])
        self.stepper.steps.copy_(stepper.steps)
        self.lr[:] = lr
        self.total.zero_()


class ResidentTrainer:
    """Makes the steps of a round by replaying recorded ones.

    A step is of the first A of C clients, A one of few numbers (C, half of it, ...), so that few are recorded; clients
    that have made all their steps do not move. A method whose step cannot be recorded is left to the plain path.
    """

    def __init__(self, method: Method, task: Task, images: ResidentImages, batch_size: int) -> None:
        self._method = method
        self._task = task
        self._images = images
        self._batch_size = batch_size
        self._buffers: dict[object, Buffers] = {}
        self._steps: Recordings[None] = Recordings()

    def train(
        self,
        params: Parameters,
        received: Parameters,
        stepper: Optimizer,
        rows: Sequence[Ints],
        crops: Sequence[Ints],
        lr: float | Tensor,
    ) -> Tensor | None:
        """Make steps on images `rows`, (A, B) each, in `crops`, (A,) each; `params` and `stepper` change in place.

        Returns the sums (C,) of objective times images, or None where nothing was done: the step cannot be recorded.
        """
        n_clients = len(stepper.steps)
        width = min(self._batch_size, -(-max(each.shape[1] for each in rows) // 8) * 8)
        key = (n_clients, width, tuple(stepper.params), _shapes(params), _shapes(received), stepper.settings)
        if key not in self._buffers:
            self._buffers[key] = Buffers(params, received, stepper, width)
        buffers = self._buffers[key]
        sizes = [at_least(len(each), n_clients) for each in rows]
        recorded = {size: self._steps.get((key, size), partial(self._step, buffers, size)) for size in {*sizes}}
        if None in recorded.values():
            return None
        buffers.load(params, received, stepper, lr)
        planned = [torch.from_numpy(x).to(buffers.rows.device) for x in _planned(rows, crops, n_clients, width)]
        for number, size in enumerate(sizes):
            for buffer, values in zip((buffers.rows, buffers.crops, buffers.active), planned, strict=True):
                buffer.copy_(values[number])
            step = recorded[size]
            assert step is not None
            step()
        for name, value in params.items():
            value.copy_(buffers.params[name])
        for name, value in stepper.state.items():
            value.copy_(buffers.stepper.state[name])
        stepper.steps.copy_(buffers.stepper.steps)
        return buffers.total.clone()

    def _step(self, buffers: Buffers, n: int) -> None:
        """One step of the first n clients."""
        batch = self._images.batch(buffers.rows[:n], buffers.crops[:n], self._task.dtype, self._method.needs)
        current = {name: value[:n].detach() for name, value in buffers.params.items()}
        received = {name: value[:n] for name, value in buffers.received.items()}
        names = list(buffers.stepper.params)
        loss, gradients = step_gradients(self._method, self._task, current, names, received, batch)
        active = buffers.active[:n]
        buffers.stepper.step(gradients, buffers.lr, active)
        counted = (batch.labels >= 0).sum(1)  # none of a client that is not active
        buffers.total[:n] += loss.detach() * counted


def _planned(
    rows: Sequence[Ints], crops: Sequence[Ints], n_clients: int, width: int
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Rows (S, C, B), crops (S, C) and who is active (S, C) in S steps."""
    all_rows = np.full((len(rows), n_clients, width), -1, np.int64)
    all_crops = np.zeros((len(rows), n_clients), np.int64)
    active = np.zeros((len(rows), n_clients), bool)
    for number, (its_rows, its_crops) in enumerate(zip(rows, crops, strict=True)):
        n, wide = its_rows.shape
        all_rows[number, :n, :wide] = its_rows
        all_crops[number, :n] = its_crops
        active[number, :n] = True
    return all_rows, all_crops, active


def at_least(n: int, most: int) -> int:
    """The smallest of most, most / 2, most / 4, ... (rounded up) that is not less than n."""
    while -(-most // 2) >= n and most > 1:
        most = -(-most // 2)
    return most


def _shapes(params: Parameters) -> tuple[tuple[str, torch.Size, torch.dtype], ...]:
    return tuple((name, value.shape, value.dtype) for name, value in params.items())


class _Buffers:
    """What C clients predict with, in tensors that stay where they are, and the batch they are asked about.

    Of parameters that are one for all clients there is one row.
    """

    def __init__(self, params: Parameters, n_clients: int, width: int, device: torch.device) -> None:
        self.n_clients = n_clients
        self.params = {name: _once(value).clone() for name, value in params.items()}
        self.rows = torch.zeros(n_clients, width, dtype=torch.long, device=device)
        self.crops = torch.zeros(n_clients, dtype=torch.long, device=device)

    def load(self, params: Parameters, order: Tensor) -> None:
        """Put parameters (C, ...) into the tensors, clients in the `order` (C,) given."""
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
        self._predictors: Recordings[Predictor] = Recordings()
        self._judged: Recordings[tuple[Tensor, Tensor]] = Recordings()

    @torch.no_grad()
    def predict(
        self, params: Parameters, order: Tensor, batches: Sequence[Ints]
    ) -> tuple[list[Tensor], list[Tensor]] | None:
        """Classes and losses (A, B) of each of the `batches` (A, B), whose clients are those of `params` in `order`.

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
            self._buffers[key] = _Buffers(params, n_clients, width, self._task.device)
        buffers = self._buffers[key]
        buffers.load(params, order)
        predictor = self._predictors.get(key, partial(self._predictor, buffers))
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

    def _predictor(self, buffers: _Buffers) -> Predictor:
        return Predictor.of(self._method, self._task, buffers.expanded(), buffers.n_clients, derived={})

    def _judge(self, buffers: _Buffers, predictor: Predictor, n: int) -> tuple[Tensor, Tensor]:
        batch = self._images.batch(buffers.rows[:n], buffers.crops[:n], self._task.dtype, self._method.needs)
        return predictor.rows(slice(n)).judge(batch.image, batch.labels)


def _once(value: Tensor) -> Tensor:
    """One row of what is the same for all clients, all rows of anything else."""
    return value[:1] if len(value) > 1 and value.stride(0) == 0 else value
