"""Clients of a federation on one machine: stored parameters, training and prediction."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from fedotp.errors import FedotpError, listed
from fedotp.federation._data import FederatedData, OnImages
from fedotp.federation._sampling import Ints
from fedotp.federation._settings import Settings
from fedotp.federation.clients._kept import KeptRows
from fedotp.federation.clients._local import LocalResult, LocalTrainer, LocalWork
from fedotp.federation.clients._noisy import require_noisy
from fedotp.federation.clients._steps import fresh_state
from fedotp.federation.testing import LocalTester, Predictions, Predictor
from fedotp.methods import Method, Need, Parameters, Task

_OPTIMIZER = "optimizer."  # prefix of a client's stored optimizer state


class Executor(Protocol):
    """Executor of clients' work side by side with that of other federations."""

    def train(
        self,
        work: LocalWork,
        received: Parameters,
        private: Parameters,
        optimizer: Parameters | None,
        on_images: OnImages | None,
    ) -> LocalResult:
        """Train as `LocalTrainer.train` does."""

    def predict(self, clients: Ints, params: Parameters, test: str = "") -> Predictions:
        """Predict as the `LocalTester` of a test does, by default for the clients' own images."""


class Clients(ABC):
    """Local clients: all of a simulation, or one of a real federation. `_received` returns the server's messages."""

    def __init__(
        self, method: Method, task: Task, data: FederatedData, settings: Settings, *, kept_in: Path | None = None
    ) -> None:
        """Create clients, with private parameters in the file `kept_in`, by default in memory."""
        self.method = method
        self.task = task = task.in_precision(settings.compute.precision)
        self.data = data
        self.settings = settings = settings.of(method)
        self.trainer = LocalTrainer(method, task, data, settings)
        self.tester = LocalTester(method, task, data, settings)
        self.testers = {"": self.tester}  # and those of other views, by name
        self.device = self.trainer.device
        self.executor: Executor | None = None
        self.round = 0
        self.group_size = 1
        self.n_fitting = 1  # clients that fit into memory together, in several groups
        if unknown := method.needs - frozenset(Need):
            raise FedotpError(f"{method.title}: needs = {listed(sorted(unknown))}: must be {listed(list(Need))}")
        if task.prompt.kgcoop and method.untrained(task) and not method.learns_prompts(task):
            raise FedotpError(f"prompt.kgcoop = {task.prompt.kgcoop}: must be 0, as {method.title} learns no prompts")
        if settings.privacy.of_steps:
            require_noisy(method, task, data, settings)
        private = method.private(task)
        self.private_names = frozenset(private)
        kept = {**private, **(self._optimizer_state(private) if self._keeps_optimizer else {})}
        self.kept = KeptRows(kept, len(data), kept_in)

    @abstractmethod
    def _received(self, clients: Ints, *, new: bool = False) -> Parameters:
        """Return the server's messages (C, ...) to `clients` (C,), which may be `new` to it."""

    # Training ----------------------------------------------------------------------------------------------

    def round_work(self, clients: Ints) -> LocalWork:
        """Return the work of `clients` (C,) in this round."""
        epochs = self.settings.federation.local_epochs
        return LocalWork(clients, self.round, epochs, self.lr, self.round * epochs)

    @property
    def lr(self) -> float:
        """Learning rate of this round."""
        rounds = self.task.authors.schedule_rounds or self.settings.federation.rounds
        return self.settings.optimizer.rate_at(self.round, rounds)

    @property
    def _keeps_optimizer(self) -> bool:
        """True if clients store their optimizer state between rounds."""
        continued = self.task.authors.leaked_momentum or not self.settings.optimizer.reset
        return continued and not self.method.in_closed_form

    def train(
        self, work: LocalWork, on_images: OnImages | None = None, *, new: bool = False
    ) -> Iterator[tuple[Ints, LocalResult]]:
        """Train clients in groups that fit into memory; `new` clients start from the initial private parameters."""
        todo = work.clients
        one_by_one = self.task.authors.leaked_momentum and work.purpose == LocalWork.purpose
        left = self._left_behind() if one_by_one else {}
        while len(todo):
            clients = todo[: 1 if one_by_one else self.group_size]
            try:
                received = self._received(clients, new=new)
                kept = self.kept.read(clients, self.device, initial=new)
                private = {name: kept[name] for name in self.private_names}
                state = left if one_by_one else {} if self.settings.optimizer.reset else _optimizer_of(kept)
                group = LocalWork(**{**vars(work), "clients": clients})
                result = (self.executor or self.trainer).train(group, received, private, state or None, on_images)
                result = self.trainer.checked(result, group, received)
            except torch.OutOfMemoryError:
                if len(clients) == 1:
                    raise
                self.group_size = len(clients) // 2  # the estimate was too high: continue with smaller groups
                continue
            left = result.optimizer
            yield clients, result
            todo = todo[len(clients) :]

    def _left_behind(self) -> Parameters:
        """Return the optimizer state (1, ...) of the last client trained before this round, or a new one."""
        last = self._last_trained()
        return _optimizer_of(self.kept.read(np.array([last or 0]), self.device, initial=last is None))

    def _last_trained(self) -> int | None:
        """Return the last client trained before this round, if known."""
        return None

    def upload(self, clients: Ints, result: LocalResult) -> Parameters:
        """Return the updates (C, ...) of `clients` (C,) after this round."""
        received = self._received(clients)
        params = self.trainer.releasable(result.params, received)
        return self.method.upload(params, received, self._upload_draws(clients))

    def keep(self, clients: Ints, result: LocalResult, *, sent: bool = True) -> None:
        """Store the clients' private parameters and, if needed, optimizer states.

        `sent` is true if they send an update of this training, which may determine what they store.
        """
        rows = {name: result.params[name] for name in self.private_names}
        if sent:
            rows |= self.method.keep(result.params, self._received(clients), self._upload_draws(clients))
        if self._keeps_optimizer:
            # A joining client has trained some parameters only; the optimizer state of the others is still initial.
            fresh = self.kept.read(clients, self.device, initial=True)
            rows = fresh | rows | {f"{_OPTIMIZER}{name}": value for name, value in result.optimizer.items()}
        self.kept.write(clients, rows)

    def _upload_draws(self, clients: Ints) -> list[np.random.Generator]:
        return self.data.draws(self.settings.seed, "upload", self.round, clients)

    # Evaluation --------------------------------------------------------------------------------------------

    def predict(self, clients: Ints | None = None, on_images: OnImages | None = None) -> Predictions:
        """Predict the test images of `clients`, by default all."""
        clients = np.arange(len(self.data)) if clients is None else clients
        return Predictions.join(
            [self.predict_with(group, params, on_images) for group, params in self.deployed(clients)]
        )

    def deployed(self, clients: Ints, *, new: bool = False) -> Iterator[tuple[Ints, Parameters]]:
        """Yield parameters (C, ...) for predictions of `clients` in groups, fine-tuned if the method requires it."""
        if epochs := self.finetune_epochs():
            purpose = "join" if new else "finetune"
            work = LocalWork(clients, self.round, epochs, self.settings.optimizer.rate, purpose=purpose)
            for group, result in self.train(work, new=new):
                yield group, result.params
            return
        for start in range(0, len(clients), self.group_size):
            group = clients[start : start + self.group_size]
            yield group, self.parameters(group, new=new)

    def predict_new(self, clients: Ints) -> Predictions:
        """Predict the test images of new clients before any training."""
        return self.predict_with(clients, self.parameters(clients, new=True), None)

    def parameters(self, clients: Ints, *, new: bool = False) -> Parameters:
        """Return the parameters (C, ...) with which `clients` (C,) predict; `new` ones have not trained yet."""
        kept = self.kept.read(clients, self.device, initial=new)
        private = {name: kept[name] for name in self.private_names}
        return self.method.deployed(self._received(clients, new=new), private)

    def predictor(self, clients: Ints) -> Predictor:
        """Return the predictor of `clients` (C,), fine-tuned if the method requires it."""
        groups = [params for _, params in self.deployed(clients)]
        params = {name: torch.cat([group[name] for group in groups]) for name in groups[0]}
        return self.tester.predictor(clients, params)

    def predict_with(
        self, clients: Ints, params: Parameters, on_images: OnImages | None = None, *, test: str = ""
    ) -> Predictions:
        """Predict the test images of `clients` (C,), or those of another `test`, with `params` (C, ...)."""
        predictions = (
            self.executor.predict(clients, params, test)
            if self.executor
            else self.testers[test].predict(clients, params)
        )
        if on_images:
            on_images(len(predictions.row))
        return predictions

    # Optimizer state ---------------------------------------------------------------------------------------

    def _optimizer_state(self, private: Parameters) -> Parameters:
        """Return the optimizer state that one client stores, before the first step."""
        received = self._received(np.zeros(1, np.int64))
        params = self.method.start(received, {name: value[None] for name, value in private.items()})
        trained = {name: value[0] for name, value in params.items() if name not in self.method.fixed}
        state = fresh_state(self.settings.optimizer, trained)
        state["steps"] = torch.zeros((), device=self.device)
        return {f"{_OPTIMIZER}{name}": value for name, value in state.items()}

    def finetune_epochs(self) -> int:
        """Return the epochs of fine-tuning before predictions."""
        epochs = self.method.finetune_epochs
        return self.settings.federation.local_epochs if epochs is None else epochs


def _optimizer_of(kept: Parameters) -> Parameters:
    """Return the optimizer state in clients' rows, without the prefix of its names."""
    return {name.removeprefix(_OPTIMIZER): kept[name] for name in kept if name.startswith(_OPTIMIZER)}
