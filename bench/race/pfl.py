"""Apple's pfl: federated averaging on its simulated backend; FedOTP's private prompts are in its user states."""

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.exception import UserNotFoundError
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor

from bench.race.work import After, PromptModel, Work


class Model(PromptModel):
    @torch.no_grad()
    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(float(self.loss(images, labels)) * len(labels), len(labels))}


class User(Dataset):  # type: ignore[misc]
    """A user whose images come in the order of the race; pfl itself reads them in the same order in every epoch."""

    def iter(self, batch_size: int | None) -> Iterator[Any]:
        work, (round_, client) = self.metadata["work"], self.metadata["round and client"]
        if batch_size is None:  # evaluation
            return iter([work.read(torch.from_numpy(work.rows(client)))])
        return cast(Iterator[Any], work.batches(round_, client))

    def __len__(self) -> int:
        return int(self.metadata["work"].images)


class Averaging(FederatedAveraging):  # type: ignore[misc]
    """Federated averaging of the shared prompt."""

    def __init__(self, initial: Tensor) -> None:
        super().__init__()
        self._initial, self._storage = initial, InMemoryUserStateStorage()

    def train_one_user(self, initial_model_state: Any, model: Any, user_dataset: Any, central_context: Any) -> Any:
        private = model.pytorch_model.private
        if private is None:
            return super().train_one_user(initial_model_state, model, user_dataset, central_context)
        try:
            private.data.copy_(self._storage.load_state(user_dataset.user_id)["private"])
        except UserNotFoundError:
            private.data.copy_(self._initial)
        trained = super().train_one_user(initial_model_state, model, user_dataset, central_context)
        self._storage.save_state({"private": private.detach().clone()}, user_dataset.user_id)
        return trained


class Report(TrainingProcessCallback):  # type: ignore[misc]
    def __init__(self, after: After) -> None:
        self._after = after

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        self._after(model.pytorch_model.shared)
        return False, Metrics()


def run(work: Work, after: After) -> None:
    settings, module = work.optimizer, Model(work)
    sgd = partial(torch.optim.SGD, momentum=settings.momentum, weight_decay=settings.weight_decay)
    model = PyTorchModel(module, sgd, torch.optim.SGD([module.shared], lr=1.0))
    model.variable_map.pop("private", None)  # it is not sent
    order = ((round_, i) for round_ in range(work.rounds) for i in work.clients_of(round_))

    def user(who: tuple[int, int]) -> User:
        return User((), user_id=str(who[1]), metadata={"work": work, "round and client": who})

    backend = SimulatedBackend(FederatedDataset(user, order.__next__), None, [WeightByDatapoints()])
    rounds = NNAlgorithmParams(work.rounds, work.rounds, len(work.clients_of(0)), None)
    training = NNTrainHyperParams(
        local_batch_size=work.batch, local_num_epochs=1, local_learning_rate=settings.rate
    )  # one "epoch" of `User.iter` is all local epochs
    after(module.shared)
    Averaging(work.initial[1:]).run(rounds, backend, model, training, callbacks=[Report(after)])
