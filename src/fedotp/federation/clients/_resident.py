"""Training where images lie on the GPU: each step is a recorded graph, made without waiting for it."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp._graphs import Recordings
from fedotp.federation._data import ResidentImages, at_least
from fedotp.federation._sampling import Ints
from fedotp.federation.clients._steps import Optimizer, step_gradients
from fedotp.methods import Method, Parameters, Task


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


def _shapes(params: Parameters) -> tuple[tuple[str, torch.Size, torch.dtype], ...]:
    return tuple((name, value.shape, value.dtype) for name, value in params.items())
