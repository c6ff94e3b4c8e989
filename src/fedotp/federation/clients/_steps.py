"""The steps of local training: which image is in which batch of which client, the gradient of a step, and SGD, Adam and
AdamW with a client axis, C independent optimizers in one.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp._graphs import Recordings
from fedotp.federation._data import ResidentImages, at_least
from fedotp.federation._sampling import Ints, order
from fedotp.federation._settings import OptimizerSettings
from fedotp.methods import Batch, Method, Parameters, Task

_BETA1 = 0.9


class Step(NamedTuple):
    """One step of the A clients still at work, the first A of a group sorted by number of steps.

    places: (A, B) positions in the clients' own lists of images, -1 for padding; epochs: (A,) counted from 0.
    """

    places: Ints
    epochs: Ints


def steps_per_epoch(sizes: Ints, batch_size: int, drop_last: bool) -> Ints:
    """Steps each client makes in an epoch (C,): the last batch may be smaller, or is dropped if it is not the only."""
    whole = sizes // batch_size
    return np.where(drop_last & (whole > 0), whole, -(-sizes // batch_size))


def local_steps(
    sizes: Ints, generators: Sequence[np.random.Generator], *, epochs: int, batch_size: int, drop_last: bool = False
) -> Iterator[Step]:
    """All steps of a group of clients with `sizes` (C,) images, sorted by falling size.

    Every epoch is a new random order of a client's images, drawn from its generator, cut into batches.
    """
    per_epoch = steps_per_epoch(sizes, batch_size, drop_last)
    totals = per_epoch * epochs
    width = min(batch_size, int(sizes.max(initial=0)))
    orders: list[Ints] = [np.empty(0, np.int64)] * len(sizes)
    for step in range(int(totals.max(initial=0))):
        n_active = int((totals > step).sum())
        places = np.full((n_active, width), -1, np.int64)
        for client in range(n_active):
            start = step % per_epoch[client] * batch_size
            if start == 0:
                orders[client] = order(generators[client], int(sizes[client]))
            batch = orders[client][start : start + batch_size]
            places[client, : len(batch)] = batch
        yield Step(places, step // per_epoch[:n_active])


def step_gradients(
    method: Method, task: Task, params: Parameters, names: Sequence[str], received: Parameters, batch: Batch
) -> tuple[Tensor, Parameters]:
    """The objective of each client (C,) on `batch`, and its gradients (C, ...) by the parameters `names`."""
    leaves = {name: value.requires_grad_() for name, value in method.leaves(params, names).items()}
    loss = method.loss(task, params | leaves, received, batch)
    found = torch.autograd.grad(loss.sum(), list(leaves.values()))
    return loss, method.gradients(leaves, dict(zip(leaves, found, strict=True)))


def fresh_state(settings: OptimizerSettings, params: Parameters) -> Parameters:
    """The optimizer's memory before the first step, named after the parameters it belongs to; their leading axes.

    For parameters (C, ...) it is that of C clients, for parameters without a client axis that of one.
    """
    of_sgd = ["momentum"] if settings.momentum else []
    names = of_sgd if settings.name == "sgd" else ["first", "second"]
    return {f"{name}.{param}": torch.zeros_like(value) for param, value in params.items() for name in names}


class Optimizer:
    """C optimizers over `params` (C, ...), which `step` changes in place.

    The updates are those of SGD, Adam and AdamW in torch.optim. Clients make different numbers of steps: sorted by
    them, those still at work are the first ones, and `step` takes the gradients of these only.
    """

    def __init__(
        self,
        settings: OptimizerSettings,
        params: Parameters,
        state: Parameters,
        steps: Tensor,
        rate: Mapping[str, float] | None = None,
        *,
        half: bool = False,
    ) -> None:
        """`state` (C, ...) as `fresh_state` makes it; `steps` (C,) steps made before (Adam corrects for few).

        `rate` are factors on the learning rate, by the parameter's name. With `half`, gradients, parameters and state
        are rounded to float16 in every step.
        """
        assert settings.name != "own", "settings must be `of` a method"
        self.settings = settings
        self.params = params
        self.state = state
        self.steps = steps
        self.rate = rate or {}
        self.half = half

    @torch.no_grad()
    def step(self, gradients: Parameters, lr: float | Tensor, active: Tensor | None = None) -> None:
        """One step of the first A clients, with gradients (A, ...); those not `active` (A,) stay as they are.

        `lr` is of all clients, or (C,) of each.
        """
        n = len(next(iter(gradients.values())))
        for name, gradient in gradients.items():
            changed = [self.params[name], *(value for key, value in self.state.items() if key.endswith(f".{name}"))]
            before = None if active is None else [value[:n].clone() for value in changed]
            update = self._sgd if self.settings.name == "sgd" else self._adam
            gradient = gradient.half().to(gradient.dtype) if self.half else gradient
            update(name, self.params[name][:n], gradient, _along(gradient, lr) * self.rate.get(name, 1.0))
            if self.half:
                for value in changed:
                    value[:n] = value[:n].half()
            if active is not None and before is not None:
                for value, old in zip(changed, before, strict=True):
                    keep = ~active.view(-1, *[1] * (old.dim() - 1))
                    value[:n] = torch.where(keep, old, value[:n])
        self.steps[:n] += 1 if active is None else active

    def _sgd(self, name: str, param: Tensor, gradient: Tensor, lr: float | Tensor) -> None:
        gradient = gradient.add(param, alpha=self.settings.weight_decay)
        if self.settings.momentum:
            momentum = self.state[f"momentum.{name}"][: len(param)]
            gradient = momentum.mul_(self.settings.momentum).add_(gradient)
        if isinstance(lr, Tensor):
            param.sub_(lr.to(param.dtype) * gradient)
        else:
            param.add_(gradient, alpha=-lr)

    def _adam(self, name: str, param: Tensor, gradient: Tensor, lr: float | Tensor) -> None:
        decoupled = self.settings.name == "adamw"
        if not decoupled:
            gradient = gradient.add(param, alpha=self.settings.weight_decay)
        first, second = (self.state[f"{kind}.{name}"][: len(param)] for kind in ("first", "second"))
        step = (self.steps[: len(param)] + 1).double().view(-1, *[1] * (param.dim() - 1))
        # In float64: 1 - 0.999 has only four digits in float32.
        beta2 = self.settings.beta2
        few_first, few_second = ((1 - beta**step).to(param.dtype) for beta in (_BETA1, beta2))
        first.lerp_(gradient, 1 - _BETA1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (second / few_second).sqrt().add_(self.settings.epsilon)
        if isinstance(lr, Tensor):
            lr = lr.to(param.dtype)
        if decoupled:
            param.mul_(1 - lr * self.settings.weight_decay)
        param.sub_(lr * first / few_first / root)


def _along(gradient: Tensor, lr: float | Tensor) -> float | Tensor:
    """The learning rate as it is multiplied with gradients (A, ...)."""
    if not isinstance(lr, Tensor) or lr.dim() == 0:
        return lr
    return lr[: len(gradient)].view(-1, *[1] * (gradient.dim() - 1))


# Where images lie on the GPU: each step is a recorded graph, made without waiting for it ------------------------


class Buffers:
    """What C clients hold while they train, in tensors that stay where they are.

    `rows` (C, B), `crops` (C,) and `active` (C,) say what the next step is, `lr` (C,) how long; `total` (C,) sums the
    objective times the images it is of.
    """

    def __init__(
        self, params: Parameters, received: Parameters, stepper: Optimizer, width: int, prior: Tensor | None
    ) -> None:
        self.prior = None if prior is None else prior.clone()
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

    def load(
        self, params: Parameters, received: Parameters, stepper: Optimizer, lr: float | Tensor, prior: Tensor | None
    ) -> None:
        """Put a round's beginning into the tensors."""
        if self.prior is not None and prior is not None:
            self.prior.copy_(prior)
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
        self._steps: Recordings[None] = Recordings(shared=True)

    def train(
        self,
        params: Parameters,
        received: Parameters,
        stepper: Optimizer,
        rows: Sequence[Ints],
        crops: Sequence[Ints],
        lr: float | Tensor,
        prior: Tensor | None = None,
    ) -> Tensor | None:
        """Make steps on images `rows`, (A, B) each, in `crops`, (A,) each; `params` and `stepper` change in place.

        `prior` (C, K) is added to logits; of one trainer all are given one, or none is.

        Returns the sums (C,) of objective times images, or None where nothing was done: the step cannot be recorded.
        """
        n_clients = len(stepper.steps)
        width = min(self._batch_size, -(-max(each.shape[1] for each in rows) // 8) * 8)
        key = (n_clients, width, tuple(stepper.params), _shapes(params), _shapes(received), stepper.settings)
        if key not in self._buffers:
            self._buffers[key] = Buffers(params, received, stepper, width, prior)
        buffers = self._buffers[key]
        sizes = [at_least(len(each), n_clients) for each in rows]
        recorded = {size: self._steps.get((key, size), partial(self._step, buffers, size)) for size in {*sizes}}
        if None in recorded.values():
            return None
        buffers.load(params, received, stepper, lr, prior)
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
        batch = self._images.batch(buffers.rows[:n], buffers.crops[:n], self._task.dtype, self._method.needs)
        if buffers.prior is not None:
            batch = batch._replace(prior=buffers.prior[:n])
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
