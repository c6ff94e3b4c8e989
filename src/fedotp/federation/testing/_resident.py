"""Evaluation where images lie on the GPU: the text tower and each batch are recorded graphs."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedotp._graphs import Recordings
from fedotp.federation._data import ResidentImages, at_least
from fedotp.federation._sampling import Ints
from fedotp.federation.testing._predict import Predictor
from fedotp.methods import Method, Parameters, Task


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
