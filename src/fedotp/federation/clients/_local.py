"""Local training of a group of clients, side by side along the client axis."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedotp.errors import FedotpError
from fedotp.federation._data import FederatedData, OnImages
from fedotp.federation._random import Ints
from fedotp.federation._resident import ResidentImages
from fedotp.federation._settings import Settings
from fedotp.federation.clients._noisy import NoisySteps, poisson_steps
from fedotp.federation.clients._resident import ResidentTrainer
from fedotp.federation.clients._steps import Optimizer, Step, fresh_state, local_steps, step_gradients
from fedotp.methods import Batch, Memory, Method, Parameters, Task
from fedotp.privacy import Canaries, Chance


@dataclass(frozen=True)
class LocalWork:
    """What a group of clients is to do.

    Attributes:
        clients: (C,) their rows in the data.
        round: the round, which with a client's number and `purpose` decides the order of its images.
        epochs: passes over the images.
        lr: learning rate, of all or of each client (C,).
        crops_from: epoch e shows crop `crops_from + e` of the images (modulo the number of crops).
        frozen: names of parameters that are not trained.
    """

    clients: Ints
    round: int
    epochs: int
    lr: float | Tensor
    crops_from: int = 0
    purpose: str = "batches"
    frozen: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class LocalResult:
    """Of C clients: trained parameters (C, ...), the optimizer's state (C, ...), the mean objective (C,) over the
    images seen, and how many images these were (C,).
    """

    params: Parameters
    optimizer: Parameters
    loss: Tensor
    images: Ints

    @property
    def n_images(self) -> int:
        """Images seen in all."""
        return int(self.images.sum())


class LocalTrainer:
    """Trains the prompts of clients on their own images.

    In the simulator a group is as many clients as memory allows; on a site of a real federation it is one.
    """

    def __init__(self, method: Method, task: Task, data: FederatedData, settings: Settings) -> None:
        """`data` holds the images of all clients that may be asked to train.

        What makes training private is drawn from the seed, unless `entropy` says from what else.
        """
        self.method = method
        self.task = task
        self.data = data
        self.settings = settings
        self.device, self.dtype = task.device, task.dtype
        images = ResidentImages.of(data.train, self.device)
        batch_size = settings.federation.batch_size
        self._resident = None if images is None else ResidentTrainer(method, task, images, batch_size)
        self._noisy = NoisySteps(method, task, settings) if settings.privacy.of_steps else None
        self.entropy: Chance | None = None

    def train(
        self,
        work: LocalWork,
        received: Parameters,
        private: Parameters,
        optimizer: Parameters | None = None,
        on_images: OnImages | None = None,
    ) -> LocalResult:
        """Train from what the server sent (C, ...) and the clients' own parameters (C, ...).

        `optimizer` is the state kept from the last round, if it is not to start anew. Nothing given is changed. A
        client whose training diverges is an error.
        """
        result = self.compute(work, received, private, optimizer, on_images)
        if self.entropy is not None:
            result = self._without_a_sign(result, received)
        self.require_finite(result, work)
        return result

    def compute(
        self,
        work: LocalWork,
        received: Parameters,
        private: Parameters,
        optimizer: Parameters | None = None,
        on_images: OnImages | None = None,
    ) -> LocalResult:
        """Train as `train` does, whatever becomes of it: nobody's training depends on who diverges beside it."""
        sizes = self.data.train.sizes(work.clients)
        falling = np.argsort(-sizes, kind="stable")  # those with most images make most steps
        at = torch.from_numpy(falling).to(self.device)
        clients = work.clients[falling]
        if isinstance(work.lr, Tensor):
            work = replace(work, lr=work.lr[at])
        received = _rows(received, at)
        params = {name: value.clone() for name, value in self.method.start(received, _rows(private, at)).items()}
        trained = {name: value for name, value in params.items() if name not in work.frozen | self.method.fixed}
        noisy = self._noisy if work.purpose == LocalWork.purpose else None
        own_classes = self.data.own_classes(clients, len(self.task.classes), self.device)
        if noisy:
            own_classes = torch.ones_like(own_classes)  # which they are is not to be told
        with torch.no_grad():
            derived = self.method.derived(self.task, params, own_classes)
        params |= derived
        stepper = self._optimizer(trained, None if optimizer is None else _rows(optimizer, at), len(clients))
        memory = self.data.memory(clients, self.device, self.dtype) if self.method.uses_memory else None
        steps = list(self._steps(work, clients, noisy)) if trained else []
        total = None if memory or noisy else self._recorded(work, clients, params, received, stepper, steps)
        seen = _images_seen(steps, len(clients))
        if noisy:
            total = self._private(noisy, work, clients, params, received, stepper, steps, on_images)
        elif total is None:
            total = self._plain(work, clients, params, received, stepper, steps, memory, on_images)
        elif on_images:
            on_images(int(seen.sum()))
        mean = total / torch.from_numpy(seen).to(self.device).clamp_min(1)
        back = torch.argsort(at)
        return LocalResult(
            params=_rows({name: value for name, value in params.items() if name not in derived}, back),
            optimizer=_rows({**stepper.state, "steps": stepper.steps}, back),
            loss=mean[back],
            images=seen[np.argsort(falling)],
        )

    def _plain(
        self,
        work: LocalWork,
        clients: Ints,
        params: Parameters,
        received: Parameters,
        stepper: Optimizer,
        steps: Sequence[Step],
        memory: Memory | None,
        on_images: OnImages | None,
    ) -> Tensor:
        """Make the steps one by one; `params` and `stepper` change in place. Sums (C,) of objective times images."""
        total = torch.zeros(len(clients), device=self.device, dtype=torch.float64)
        for step in steps:
            n_active = len(step.places)
            batch = self._batch(work, clients[:n_active], step, memory)
            current = {name: value[:n_active].detach() for name, value in params.items()}
            loss, gradients = step_gradients(
                self.method, self.task, current, list(stepper.params), _first(received, n_active), batch
            )
            stepper.step(gradients, work.lr)
            total[:n_active] += loss.detach() * (batch.labels >= 0).sum(1)
            if on_images:
                on_images(int((step.places >= 0).sum()))
        return total

    def _private(
        self,
        noisy: NoisySteps,
        work: LocalWork,
        clients: Ints,
        params: Parameters,
        received: Parameters,
        stepper: Optimizer,
        steps: Sequence[Step],
        on_images: OnImages | None,
    ) -> Tensor:
        """The same with differential privacy, see `_noisy`."""
        total = torch.zeros(len(clients), device=self.device, dtype=torch.float64)
        sizes = self.data.train.sizes(clients)
        chances = self._chances("noise", work, clients)
        all_units = self._units(clients)
        blind = noisy.blind(params, received)
        for step in steps:
            n = len(step.places)
            batch = self._batch(work, clients[:n], step, None)
            units = np.stack([_unit_numbers(own, row) for own, row in zip(all_units, step.places, strict=False)])
            current = {name: value[:n].detach() for name, value in params.items()}
            sent = _first(received, n)
            gradients, loss = noisy.gradients(
                current,
                current | _first(blind, n),
                list(stepper.params),
                sent,
                batch,
                torch.from_numpy(units).to(self.device),
                clients[:n],
                sizes[:n],
                chances[:n],
            )
            stepper.step(gradients, work.lr)
            total[:n] += loss * (batch.labels >= 0).sum(1)
            if on_images:
                on_images(int((step.places >= 0).sum()))
        return total

    def plant(self, canaries: Canaries) -> None:
        """Let them take part in every private step."""
        assert self._noisy is not None
        self._noisy.canaries = canaries

    def _chances(self, purpose: str, work: LocalWork, clients: Ints) -> Sequence[Chance]:
        """What each client (C,) draws from to be private."""
        if self.entropy is not None:
            return [self.entropy] * len(clients)
        return self.data.draws(self.settings.seed, purpose, work.round, clients)

    def _units(self, clients: Ints) -> list[Ints]:
        """Whose each image of each client is, counted from 0: its own, or its group's."""
        data = self.data.train
        if self.settings.privacy.unit == "example" or data.groups is None:
            return [np.arange(len(data.clients[client])) for client in clients]
        return [np.unique(data.groups[data.clients[client]], return_inverse=True)[1] for client in clients]

    def _recorded(
        self,
        work: LocalWork,
        clients: Ints,
        params: Parameters,
        received: Parameters,
        stepper: Optimizer,
        steps: Sequence[Step],
    ) -> Tensor | None:
        """The same by replaying recorded steps, where images are on a GPU; None where that cannot be."""
        if self._resident is None or not steps:
            return None
        data = self.data.train
        rows = [data.rows(clients[: len(step.places)], step.places) for step in steps]
        crops = [(work.crops_from + step.epochs) % data.features.n_crops for step in steps]
        return self._resident.train(params, received, stepper, rows, crops, work.lr)

    def _optimizer(self, trained: Parameters, kept: Parameters | None, n_clients: int) -> Optimizer:
        """A fresh optimizer, or one that goes on from the state `kept`."""
        state = fresh_state(self.settings.optimizer, trained)
        if kept is None:
            kept = {**state, "steps": torch.zeros(n_clients, device=self.device)}
        state = {name: kept[name] for name in state}
        half = self.task.authors.half_precision
        return Optimizer(self.settings.optimizer, trained, state, kept["steps"], self.method.rate, half=half)

    def _steps(self, work: LocalWork, clients: Ints, noisy: NoisySteps | None) -> Iterator[Step]:
        rounds = self.settings.federation
        if noisy:
            chances = self._chances("poisson", work, clients)
            return poisson_steps(self._units(clients), chances, self.settings, epochs=work.epochs)
        return local_steps(
            self.data.train.sizes(clients),
            self.data.draws(self.settings.seed, work.purpose, work.round, clients),
            epochs=work.epochs,
            batch_size=rounds.batch_size,
            drop_last=rounds.drop_last,
        )

    def _batch(self, work: LocalWork, clients: Ints, step: Step, memory: Memory | None) -> Batch:
        data = self.data.train
        crop = (work.crops_from + step.epochs) % data.features.n_crops
        rows = data.rows(clients, step.places)
        image, labels = data.read(rows, crop[:, None], self.device, self.dtype, self.method.needs)
        places = torch.from_numpy(step.places).to(self.device)
        return Batch(image, labels, places, None if memory is None else memory.rows(slice(len(clients))))

    def releasable(self, params: Parameters, received: Parameters) -> Parameters:
        """Of what was trained in a round (C, ...), what may decide on what is sent: with privacy, nothing without."""
        if self._noisy is None:
            return params
        return params | self._noisy.untaught(received)

    def _without_a_sign(self, result: LocalResult, received: Parameters) -> LocalResult:
        """The result in which what learned without noise begins anew if it has diverged.

        An error, which the server sees, would say something of the images that no noise covers.
        """
        assert self._noisy is not None
        initial = self._noisy.untaught(received)
        anew = {name: value for name, value in initial.items() if not result.params[name].isfinite().all()}
        return replace(result, params=result.params | anew, loss=torch.zeros_like(result.loss))

    def require_finite(self, result: LocalResult, work: LocalWork) -> None:
        """Refuse what has diverged: the error names a client."""
        finite = result.loss.isfinite()
        for value in result.params.values():
            finite &= value.reshape(len(value), -1).isfinite().all(1)
        if not finite.all():
            client = self.data.names[work.clients[int((~finite).nonzero()[0])]]
            raise FedotpError(
                f"training of client {client} diverged in round {work.round + 1} (loss or prompt not finite); "
                f"lower optimizer.lr = {self.settings.optimizer.rate}"
            )


def _unit_numbers(units: Ints, places: Ints) -> Ints:
    """Whose the images at `places` (B,) are, counted from 0 in this step; -1 stays. `units` (m,) are of all images."""
    drawn = places >= 0
    numbers = np.full(len(places), -1, np.int64)
    numbers[drawn] = np.unique(units[places[drawn]], return_inverse=True)[1]
    return numbers


def _rows(params: Parameters, at: Tensor) -> Parameters:
    return {name: value[at] for name, value in params.items()}


def _first(params: Parameters, n: int) -> Parameters:
    return {name: value[:n] for name, value in params.items()}


def _images_seen(steps: Sequence[Step], n_clients: int) -> Ints:
    """How many images each of the clients (C,) sees in these steps."""
    seen = np.zeros(n_clients, np.int64)
    for step in steps:
        seen[: len(step.places)] += (step.places >= 0).sum(1)
    return seen
