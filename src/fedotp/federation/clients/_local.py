"""Local training of a group of clients, side by side along the client axis."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedotp.errors import FedotpError
from fedotp.federation._data import FederatedData, OnImages, ResidentImages
from fedotp.federation._sampling import Ints
from fedotp.federation._settings import Settings
from fedotp.federation.clients._noisy import GroupNoise, NoisySteps, poisson_steps
from fedotp.federation.clients._steps import Optimizer, ResidentTrainer, Step, fresh_state, local_steps, step_gradients
from fedotp.methods import Batch, Memory, Method, Need, Parameters, Task
from fedotp.privacy import Canaries, Chance

_AT_ONCE = 1 << 26  # numbers in images' features per step of statistics


@dataclass(frozen=True)
class LocalWork:
    """Work of a group of clients.

    Attributes:
        clients: (C,) row numbers of the clients in the data.
        round: the round; with a client's number and `purpose` it determines the order of images.
        epochs: local epochs.
        lr: learning rate, common or of each client (C,).
        crops_from: epoch e uses crop `crops_from + e` of the images (modulo the number of crops).
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
    """Trained parameters and optimizer state (C, ...) of C clients, mean objective (C,), and number of images (C,)."""

    params: Parameters
    optimizer: Parameters
    loss: Tensor
    images: Ints

    @property
    def n_images(self) -> int:
        """Number of images of all clients."""
        return int(self.images.sum())


class LocalTrainer:
    """Training of groups of clients on their own images; a group of a real site is one client."""

    def __init__(self, method: Method, task: Task, data: FederatedData, settings: Settings) -> None:
        """Prepare training; `data` must contain the images of all clients to train.

        Privacy noise is drawn from the seed, or from `entropy` if it is set.
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
        """Train from `received` (C, ...) and the clients' `private` parameters (C, ...), which are not modified.

        `optimizer` is the state from the last round, None for a new one. A client that diverges does not affect others
        (`checked` raises an error for it).
        """
        if self.method.in_closed_form:
            return self._statistics(work, received, private, on_images)
        falling = np.argsort(-self.data.train.sizes(work.clients), kind="stable")  # by decreasing number of steps
        at = torch.from_numpy(falling).to(self.device)
        group = self._begin(replace(work, clients=work.clients[falling]), at, received, private, optimizer)
        total = self._recorded(group)
        if total is None:
            total = torch.zeros(len(at), device=self.device, dtype=torch.float64)
            for step in group.steps:
                n = len(step.places)
                batch = self._batch(group, step)
                current = {name: value[:n].detach() for name, value in group.params.items()}
                names, sent = list(group.stepper.params), {name: value[:n] for name, value in group.received.items()}
                if self._noisy and group.noise:
                    loss, gradients = self._noisy.gradients(group.noise, current, names, sent, batch, step.places)
                else:
                    loss, gradients = step_gradients(self.method, self.task, current, names, sent, batch)
                group.stepper.step(gradients, group.work.lr)
                total[:n] += loss.detach() * (batch.labels >= 0).sum(1)
                if on_images:
                    on_images(int((step.places >= 0).sum()))
        elif on_images:
            on_images(int(group.images_seen.sum()))
        mean = total / torch.from_numpy(group.images_seen).to(self.device).clamp_min(1)
        back = torch.argsort(at)
        return LocalResult(
            params=_rows({name: value for name, value in group.params.items() if name not in group.derived}, back),
            optimizer=_rows({**group.stepper.state, "steps": group.stepper.steps}, back),
            loss=mean[back],
            images=group.images_seen[np.argsort(falling)],
        )

    @torch.no_grad()
    def _statistics(
        self, work: LocalWork, received: Parameters, private: Parameters, on_images: OnImages | None
    ) -> LocalResult:
        """Compute the means of the method's statistics over each client's images, in place of training."""
        data, sizes = self.data.train, self.data.train.sizes(work.clients)
        params, sums = self.method.start(received, private), Parameters()
        vision, width = self.task.clip.config.vision, self.task.clip.config.embed_dim
        n_features = (1 if self.method.needs == {Need.POOLED} else vision.grid**2) * width * len(sizes)
        step = max(1, _AT_ONCE // n_features)
        for start in range(0, int(sizes.max(initial=0)), step):
            places = np.arange(start, min(start + step, int(sizes.max())))
            places = np.where(places[None] < sizes[:, None], places[None], -1)
            rows = data.rows(work.clients, places)
            image, labels = data.read(rows, 0, self.device, self.dtype, self.method.needs)
            found = self.method.statistics(self.task, params, Batch(image, labels))
            sums = {name: sums[name] + value if sums else value for name, value in found.items()}
            if on_images:
                on_images(int((places >= 0).sum()))
        n = torch.from_numpy(sizes).to(self.device, torch.float64)
        own = sent = {name: _per_image(value, n) for name, value in sums.items()}
        if self._noisy and work.purpose == LocalWork.purpose:
            noised = self._noisy.released(sums, self._chances("noise", work))
            sent = {name: _per_image(value, n) for name, value in noised.items()}
            own = sent if self.settings.privacy.private else own
        settled = self.method.settled(params, own, n) | sent
        no_loss = torch.full((len(sizes),), torch.nan, device=self.device, dtype=torch.float64)
        return LocalResult(settled, {}, no_loss, sizes)

    def _begin(
        self, work: LocalWork, at: Tensor, received: Parameters, private: Parameters, optimizer: Parameters | None
    ) -> "_Group":
        """Initialise a group: the clients of `work`, at positions `at` (C,) of the other arguments."""
        clients = work.clients
        if isinstance(work.lr, Tensor):
            work = replace(work, lr=work.lr[at])
        received = _rows(received, at)
        params = {name: value.clone() for name, value in self.method.start(received, _rows(private, at)).items()}
        trained = {name: value for name, value in params.items() if name not in work.frozen | self.method.fixed}
        own_classes = self.data.own_classes(clients, len(self.task.classes), self.device)
        noisy = self._noisy if work.purpose == LocalWork.purpose else None
        if noisy:
            own_classes = torch.ones_like(own_classes)  # the true ones are private
        with torch.no_grad():
            derived = self.method.derived(self.task, params, own_classes)
        params |= derived
        noise = None
        if noisy:
            sizes, units = self.data.train.sizes(clients), self._units(clients)
            noise = GroupNoise(clients, sizes, units, self._chances("noise", work), noisy.blind(params, received))
        return _Group(
            work,
            received,
            params,
            derived.keys(),
            self._optimizer(trained, None if optimizer is None else _rows(optimizer, at), len(clients)),
            list(self._steps(work, noisy)) if trained else [],
            self.data.memory(clients, self.device, self.dtype) if self.method.uses_memory else None,
            noise,
            self._prior(clients),
        )

    def _prior(self, clients: Ints) -> Tensor | None:
        """Return the class prior (C, K) of `clients` (C,) in the loss; None without one."""
        strength, smoothing = self.settings.federation.prior, self.settings.evaluation.smoothing
        prior = self.data.class_prior(clients, len(self.task.classes), strength, smoothing)
        return None if prior is None else prior.to(self.device, self.dtype)

    def plant(self, canaries: Canaries) -> None:
        """Add canaries to every private step."""
        if self.method.in_closed_form:
            raise FedotpError(f"{self.method.title} has no training steps to add canaries to")
        assert self._noisy is not None
        self._noisy.canaries = canaries

    def _chances(self, purpose: str, work: LocalWork) -> Sequence[Chance]:
        """Return the source of private randomness of each client (C,)."""
        if self.entropy is not None:
            return [self.entropy] * len(work.clients)
        return self.data.draws(self.settings.seed, purpose, work.round, work.clients)

    def _units(self, clients: Ints) -> list[Ints]:
        """Return the privacy unit of each image of each client, counted from 0: the image or its group."""
        data = self.data.train
        if self.settings.privacy.unit == "example" or data.groups is None:
            return [np.arange(len(data.clients[client])) for client in clients]
        return [np.unique(data.groups[data.clients[client]], return_inverse=True)[1] for client in clients]

    def _recorded(self, group: "_Group") -> Tensor | None:
        """Replay captured steps for images on a GPU; return None if that is not possible."""
        if self._resident is None or not group.steps or group.memory or group.noise:
            return None
        data, work = self.data.train, group.work
        rows = [data.rows(work.clients[: len(step.places)], step.places) for step in group.steps]
        crops = [self._crops(work, step) for step in group.steps]
        return self._resident.train(group.params, group.received, group.stepper, rows, crops, work.lr, group.prior)

    def _crops(self, work: LocalWork, step: Step) -> Ints:
        """Return the crop of each client (A,) in a step."""
        return (work.crops_from + step.epochs) % self.data.train.features.n_crops

    def _optimizer(self, trained: Parameters, kept: Parameters | None, n_clients: int) -> Optimizer:
        """Return a new optimizer, or one with the state `kept`."""
        state = fresh_state(self.settings.optimizer, trained)
        if kept is None:
            kept = {**state, "steps": torch.zeros(n_clients, device=self.device)}
        state = {name: kept[name] for name in state}
        half = self.task.authors.half_precision
        return Optimizer(self.settings.optimizer, trained, state, kept["steps"], self.method.rate, half=half)

    def _steps(self, work: LocalWork, noisy: NoisySteps | None) -> Iterator[Step]:
        rounds = self.settings.federation
        if noisy:
            chances = self._chances("poisson", work)
            return poisson_steps(self._units(work.clients), chances, self.settings, epochs=work.epochs)
        return local_steps(
            self.data.train.sizes(work.clients),
            self.data.draws(self.settings.seed, work.purpose, work.round, work.clients),
            epochs=work.epochs,
            batch_size=rounds.batch_size,
            drop_last=rounds.drop_last,
        )

    def _batch(self, group: "_Group", step: Step) -> Batch:
        data, n = self.data.train, len(step.places)
        rows = data.rows(group.work.clients[:n], step.places)
        crops = self._crops(group.work, step)[:, None]
        image, labels = data.read(rows, crops, self.device, self.dtype, self.method.needs)
        places = torch.from_numpy(step.places).to(self.device)
        memory = None if group.memory is None else group.memory.rows(slice(n))
        return Batch(image, labels, places, memory, prior=None if group.prior is None else group.prior[:n])

    def releasable(self, params: Parameters, received: Parameters) -> Parameters:
        """Return `params` (C, ...) on which uploads may depend: with privacy, none that were trained without noise."""
        if self._noisy is None:
            return params
        return params | self._noisy.untaught(received)

    def checked(self, result: LocalResult, work: LocalWork, received: Parameters) -> LocalResult:
        """Raise an error with a client's name if the result has diverged.

        With `entropy` the server would see this error, which would reveal something about the images without noise.
        Parameters trained without noise are reset to their initial values instead.
        """
        if self.entropy is not None:
            assert self._noisy is not None
            initial = self._noisy.untaught(received)
            anew = {name: value for name, value in initial.items() if not result.params[name].isfinite().all()}
            result = replace(result, params=result.params | anew, loss=torch.zeros_like(result.loss))
        finite = result.loss.isfinite() | self.method.in_closed_form  # a closed form has no loss
        for value in result.params.values():
            finite &= value.reshape(len(value), -1).isfinite().all(1)
        if not finite.all():
            client = self.data.names[work.clients[int((~finite).nonzero()[0])]]
            raise FedotpError(
                f"training of client {client} diverged in round {work.round + 1} (loss or parameters not finite); "
                f"lower optimizer.lr = {self.settings.optimizer.rate}"
            )
        return result


@dataclass(frozen=True, eq=False)
class _Group:
    """C clients in training, by decreasing number of images; `params` and `stepper` change in place."""

    work: LocalWork
    received: Parameters
    params: Parameters
    derived: Collection[str]  # names of parameters computed from others
    stepper: Optimizer
    steps: Sequence[Step]
    memory: Memory | None
    noise: GroupNoise | None
    prior: Tensor | None

    @cached_property
    def images_seen(self) -> Ints:
        """Number of images that each client (C,) trains on."""
        seen = np.zeros(len(self.work.clients), np.int64)
        for step in self.steps:
            seen[: len(step.places)] += (step.places >= 0).sum(1)
        return seen


def _per_image(sums: Tensor, n: Tensor) -> Tensor:
    """Divide `sums` (C, ...) by the numbers n (C,) of images."""
    return sums / n.clamp_min(1).view(-1, *[1] * (sums.dim() - 1))


def _rows(params: Parameters, at: Tensor) -> Parameters:
    return {name: value[at] for name, value in params.items()}
