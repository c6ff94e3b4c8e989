"""Local training of a group of clients, side by side along the client axis."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedotp.errors import FedotpError
from fedotp.federation._batches import local_steps
from fedotp.federation._data import FederatedData
from fedotp.federation._optimizer import Optimizer, fresh_state
from fedotp.federation._random import Ints, draws
from fedotp.federation._settings import ComputeSettings, Settings
from fedotp.methods import Batch, Method, Parameters, Task

OnImages = Callable[[int], object]


@dataclass(frozen=True)
class LocalWork:
    """What a group of clients is to do.

    Attributes:
        clients: (C,) their numbers.
        round: the round, which with the client's number and `purpose` decides the order of its images.
        epochs: passes over the images.
        lr: learning rate.
        views_from: epoch e shows view `views_from + e` of the images (modulo the number of views).
        frozen: names of parameters that are not trained.
    """

    clients: Ints
    round: int
    epochs: int
    lr: float
    views_from: int = 0
    purpose: str = "batches"
    frozen: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class LocalResult:
    """Of C clients: trained parameters (C, ...), the optimizer's state (C, ...), the mean objective (C,) over the
    images seen, and how many images these were in all.
    """

    params: Parameters
    optimizer: Parameters
    loss: Tensor
    n_images: int


def compute_in(compute: ComputeSettings, device: torch.device) -> torch.autocast:
    """The context in which the text tower runs: autocast for bfloat16, nothing otherwise."""
    return torch.autocast(device.type, torch.bfloat16, enabled=compute.precision == "bfloat16")


class LocalTrainer:
    """Trains the prompts of clients on their own images.

    In the simulator a group is as many clients as memory allows; on a site of a real federation it is one.
    """

    def __init__(self, method: Method, task: Task, data: FederatedData, settings: Settings) -> None:
        """`data` holds the images of all clients that may be asked to train."""
        self.method = method
        self.task = task
        self.data = data
        self.settings = settings
        weight = task.clip.text_projection
        self.device, self.dtype = weight.device, weight.dtype

    def train(
        self,
        work: LocalWork,
        received: Parameters,
        private: Parameters,
        optimizer: Parameters | None = None,
        on_images: OnImages | None = None,
    ) -> LocalResult:
        """Train from what the server sent (C, ...) and the clients' own parameters (C, ...).

        `optimizer` is the state kept from the last round, if it is not to start anew. Nothing given is changed.
        """
        data = self.data.train
        falling = np.argsort(-data.sizes(work.clients), kind="stable")  # those with most images have most steps
        at = torch.from_numpy(falling).to(self.device)
        clients = work.clients[falling]
        received = {name: value[at] for name, value in received.items()}
        started = self.method.start(received, {name: value[at] for name, value in private.items()})
        params = {name: value.clone() for name, value in started.items()}
        trained = {name: value for name, value in params.items() if name not in work.frozen}
        memory = self.data.memory(clients, self.device, self.dtype) if self.method.uses_memory else None
        state = fresh_state(self.settings.optimizer, params)
        if optimizer is not None:
            state = {name: optimizer[name][at] for name in state}
        steps = torch.zeros(len(clients), device=self.device) if optimizer is None else optimizer["steps"][at].clone()
        stepper = Optimizer(self.settings.optimizer, trained, state, steps)
        seed, rounds = self.settings.seed, self.settings.federation
        plan = local_steps(
            data.sizes(clients),
            [draws(seed, work.purpose, work.round, int(client)) for client in clients],
            epochs=work.epochs,
            batch_size=rounds.batch_size,
            drop_last=rounds.drop_last,
        )
        total = torch.zeros(len(clients), device=self.device, dtype=torch.float64)
        seen = torch.zeros_like(total)
        n_images = 0
        for step in plan if trained else ():
            n_active = len(step.places)
            view = (work.views_from + step.epochs) % data.features.n_views
            rows = data.rows(clients[:n_active], step.places)
            image, labels = data.read(rows, view[:, None], self.device, self.dtype)
            places = torch.from_numpy(step.places).to(self.device)
            few = None if memory is None else type(memory)(*(field[:n_active] for field in memory))
            batch = Batch(image, labels, places, few)
            current = {name: value[:n_active].detach() for name, value in params.items()}
            leaves = {name: current[name].requires_grad_() for name in trained}
            with compute_in(self.settings.compute, self.device):
                loss = self.method.loss(
                    self.task, current, {name: value[:n_active] for name, value in received.items()}, batch
                )
            gradients = torch.autograd.grad(loss.sum(), list(leaves.values()))
            stepper.step(dict(zip(leaves, gradients, strict=True)), work.lr)
            counted = (labels >= 0).sum(1)
            total[:n_active] += loss.detach() * counted
            seen[:n_active] += counted
            n_images += int((step.places >= 0).sum())
            if on_images:
                on_images(int((step.places >= 0).sum()))
        mean = total / seen.clamp_min(1)
        self._require_finite(mean, params, clients, work)
        back = torch.argsort(at)
        return LocalResult(
            params={name: value[back] for name, value in params.items()},
            optimizer={name: value[back] for name, value in {**stepper.state, "steps": stepper.steps}.items()},
            loss=mean[back],
            n_images=n_images,
        )

    def _require_finite(self, loss: Tensor, params: Parameters, clients: Ints, work: LocalWork) -> None:
        finite = loss.isfinite()
        for value in params.values():
            finite &= value.flatten(1).isfinite().all(1)
        if not finite.all():
            client = self.data.names[clients[int((~finite).nonzero()[0])]]
            raise FedotpError(
                f"training of client {client} diverged in round {work.round + 1} (loss or prompt not finite); "
                f"lower optimizer.lr = {self.settings.optimizer.lr}"
            )
