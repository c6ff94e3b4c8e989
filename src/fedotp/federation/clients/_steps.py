"""Steps of local training: batches, gradients, and SGD, Adam and AdamW as C independent optimizers in one."""

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
    """A step of the A clients with steps left, the first A of a group sorted by decreasing number of steps.

    places: (A, B) positions in the clients' lists of images, -1 for padding; epochs: (A,) counted from 0.
    """

    places: Ints
    epochs: Ints


def steps_per_epoch(sizes: Ints, batch_size: int, drop_last: bool) -> Ints:
    """Return the steps of each client in an epoch (C,), without smaller last batches if `drop_last`."""
    whole = sizes // batch_size
    return np.where(drop_last & (whole > 0), whole, -(-sizes // batch_size))


def local_steps(
    sizes: Ints, generators: Sequence[np.random.Generator], *, epochs: int, batch_size: int, drop_last: bool = False
) -> Iterator[Step]:
    """Yield all steps of clients with `sizes` (C,) images, in decreasing order.

    In every epoch a client's images are shuffled by its generator and divided into batches.
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
    """Compute the objective (C,) of each client on `batch`, and its gradients (C, ...) by the parameters `names`."""
    leaves = {name: value.requires_grad_() for name, value in method.leaves(params, names).items()}
    loss = method.loss(task, params | leaves, received, batch)
    found = torch.autograd.grad(loss.sum(), list(leaves.values()))
    return loss, method.gradients(leaves, dict(zip(leaves, found, strict=True)))


def fresh_state(settings: OptimizerSettings, params: Parameters) -> Parameters:
    """Return the initial optimizer state of parameters with or without a client axis, named after them."""
    of_sgd = ["momentum"] if settings.momentum else []
    names = of_sgd if settings.name == "sgd" else ["first", "second"]
    return {f"{name}.{param}": torch.zeros_like(value) for param, value in params.items() for name in names}


class Optimizer:
    """C optimizers of `params` (C, ...), changed in place, equivalent to SGD, Adam and AdamW in torch.optim.

    Clients are sorted by decreasing number of steps, and `step` takes the gradients of the first ones only.
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
        """Continue from `state` (C, ...), initially that of `fresh_state`, after `steps` (C,).

        `rate` are factors of the learning rate by parameter name. With `half`, gradients, parameters and state are
        rounded to float16 in every step.
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
        """Make a step of the first A clients with gradients (A, ...), except for those not `active` (A,).

        `lr` is common, or (C,) of each client.
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
        # In float64, because 1 - 0.999 has only four digits in float32.
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
    """Return the learning rate in a shape that broadcasts with gradients (A, ...)."""
    if not isinstance(lr, Tensor) or lr.dim() == 0:
        return lr
    return lr[: len(gradient)].view(-1, *[1] * (gradient.dim() - 1))


# Images on the GPU: each step is a CUDA graph, launched without synchronisation ---------------------------------


class Buffers:
    """State of C clients in training, in fixed tensors.

    `rows` (C, B), `crops` (C,), `active` (C,) and `lr` (C,) define the next step; `total` (C,) sums the objective times
    the number of images.
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
        """Load the start of a round into the tensors."""
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
    """Training of a round by replaying captured steps.

    A step covers the first A of C clients, with A in C, C / 2, ..., to limit the number of captures; clients without
    steps left are inactive. A method whose step cannot be captured uses the ordinary path.
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
        prior: Tensor | None = None,
    ) -> Tensor | None:
        """Make steps on images `rows`, (A, B) each, in `crops`, (A,) each; `params` and `stepper` change in place.

        `prior` (C, K) is added to logits; a trainer must always get one, or never.

        Returns the sums (C,) of objective times images, or None, without any change, if the step cannot be captured.
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
        batch = self._images.batch(buffers.rows[:n], buffers.crops[:n], self._task, self._method.needs)
        if buffers.prior is not None:
            batch = batch._replace(prior=buffers.prior[:n])
        current = {name: value[:n].detach() for name, value in buffers.params.items()}
        received = {name: value[:n] for name, value in buffers.received.items()}
        names = list(buffers.stepper.params)
        loss, gradients = step_gradients(self._method, self._task, current, names, received, batch)
        active = buffers.active[:n]
        buffers.stepper.step(gradients, buffers.lr, active)
        counted = (batch.labels >= 0).sum(1)  # 0 for an inactive client
        buffers.total[:n] += loss.detach() * counted


def _planned(
    rows: Sequence[Ints], crops: Sequence[Ints], n_clients: int, width: int
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Return rows (S, C, B), crops (S, C) and active clients (S, C) of S steps."""
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
