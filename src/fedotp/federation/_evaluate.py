"""Predictions of the clients' classifiers on their own test images."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp.federation._data import FederatedData
from fedotp.federation._predict import Predictor
from fedotp.federation._random import Ints
from fedotp.federation._settings import Settings
from fedotp.methods import Method, Parameters, Task


@dataclass(frozen=True, eq=False)
class Predictions:
    """One line per test image: client number, row in the test split, label, predicted class, loss; all (n,)."""

    client: Ints
    row: Ints
    label: Ints
    predicted: Ints
    loss: NDArray[np.float64]

    @classmethod
    def join(cls, parts: list["Predictions"]) -> "Predictions":
        """All lines of `parts`, one after the other."""
        none = np.empty(0, np.int64)
        parts = [cls(none, none, none, none, np.empty(0)), *parts]
        columns = ("client", "row", "label", "predicted", "loss")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


def make_predictor(method: Method, task: Task, data: FederatedData, clients: Ints, params: Parameters) -> Predictor:
    """What `clients` (C,) predict with: `params` (C, ...) and, where the method looks them up, their own images."""
    memory = data.memory(clients, task.device, task.dtype) if method.uses_memory else None
    return Predictor.of(method, task, params, len(clients), memory=memory)


@torch.no_grad()
def predict(
    method: Method, task: Task, data: FederatedData, clients: Ints, params: Parameters, settings: Settings
) -> Predictions:
    """What `clients` (C,) predict with `params` (C, ...) for their test images."""
    device, dtype = task.device, task.dtype
    predictor = make_predictor(method, task, data, clients, params)
    falling = np.argsort(-data.test.sizes(clients), kind="stable")
    predictor, clients = predictor.rows(torch.from_numpy(falling).to(device)), clients[falling]
    sizes = data.test.sizes(clients)
    found: list[tuple[Ints, Tensor, Tensor]] = []  # rows, classes and losses, (A, B) each
    size = settings.evaluation.batch_size
    for start in range(0, int(sizes.max(initial=0)), size):
        n_active = int((sizes > start).sum())
        places = np.arange(start, min(start + size, int(sizes[0])))
        places = np.where(places[None] < sizes[:n_active, None], places[None], -1)
        rows = data.test.rows(clients[:n_active], places)
        image, labels = data.test.read(rows, 0, device, dtype)
        scores = predictor.rows(slice(n_active)).scores(image)  # (A, B, K)
        log_probability = predictor.log_probabilities(scores)
        loss = -log_probability.gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1)
        found.append((rows, scores.argmax(-1), loss))
    return Predictions.join([_lines(data, clients, *part) for part in found])  # only here the host waits for a GPU


def _lines(data: FederatedData, clients: Ints, rows: Ints, predicted: Tensor, loss: Tensor) -> Predictions:
    """The lines of the images `rows` (A, B) of the first A `clients`, -1 for padding."""
    real = rows >= 0
    return Predictions(
        client=np.broadcast_to(clients[: len(rows), None], rows.shape)[real],
        row=rows[real],
        label=data.test.labels[rows[real]],
        predicted=predicted.cpu().numpy()[real],
        loss=loss.cpu().numpy()[real],
    )
