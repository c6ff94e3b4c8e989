"""Predictions of the clients' classifiers on their own test images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.federation._data import FederatedData
from fedotp.federation._predict import Predictor
from fedotp.federation._random import Ints
from fedotp.federation._resident import ResidentImages
from fedotp.federation._resident_test import ResidentTester
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

    def in_order(self) -> "Predictions":
        """The same lines by client and row."""
        at = np.lexsort((self.row, self.client))
        return Predictions(self.client[at], self.row[at], self.label[at], self.predicted[at], self.loss[at])


class LocalTester:
    """Tests the classifiers of clients on their own images, as `LocalTrainer` trains them."""

    def __init__(self, method: Method, task: Task, data: FederatedData, settings: Settings) -> None:
        """`data` holds the images of all clients that may be asked to predict."""
        self.method = method
        self.task = task
        self.data = data
        self.batch_size = settings.evaluation.batch_size
        images = ResidentImages.of(data.test, task.device)
        can_record = images is not None and not method.uses_memory
        self._resident = ResidentTester(method, task, images, self.batch_size) if images and can_record else None

    def predictor(self, clients: Ints, params: Parameters) -> Predictor:
        """What `clients` (C,) predict with: `params` (C, ...) and, where the method looks them up, their own images."""
        task = self.task
        memory = self.data.memory(clients, task.device, task.dtype) if self.method.uses_memory else None
        return Predictor.of(self.method, task, params, len(clients), memory=memory)

    def predict(self, clients: Ints, params: Parameters) -> Predictions:
        """What `clients` (C,) predict with `params` (C, ...) for their test images."""
        falling = np.argsort(-self.data.test.sizes(clients), kind="stable")
        rows = list(self._batches(clients[falling]))
        order = torch.from_numpy(falling).to(self.task.device)
        found = self._resident.predict(params, order, rows) if self._resident and rows else None
        if found is None:
            found = self._plain(self.predictor(clients, params).rows(order), rows)
        return Predictions.join(  # only here the host waits for a GPU
            [self._lines(clients[falling], *part) for part in zip(rows, *found, strict=True)]
        )

    def _batches(self, clients: Ints) -> Iterator[Ints]:
        """Rows (A, B) of the test images of `clients`, sorted by falling number of these, -1 for padding."""
        sizes = self.data.test.sizes(clients)
        for start in range(0, int(sizes.max(initial=0)), self.batch_size):
            n_active = int((sizes > start).sum())
            places = np.arange(start, min(start + self.batch_size, int(sizes[0])))
            places = np.where(places[None] < sizes[:n_active, None], places[None], -1)
            yield self.data.test.rows(clients[:n_active], places)

    def _plain(self, predictor: Predictor, batches: Sequence[Ints]) -> tuple[list[Tensor], list[Tensor]]:
        """Predicted classes and losses of each batch, (A, B)."""
        predicted, losses = [], []
        for rows in batches:
            image, labels = self._read(rows)
            classes, loss = predictor.rows(slice(len(rows))).judge(image, labels)
            predicted.append(classes)
            losses.append(loss)
        return predicted, losses

    def _read(self, rows: Ints) -> tuple[ImageFeatures, Tensor]:
        """Features and labels of `rows` (A, B); images that all clients are shown are read once."""
        alike = len(rows) > 1 and bool((rows == rows[0]).all())
        image, labels = self.data.test.read(
            rows[:1] if alike else rows, 0, self.task.device, self.task.dtype, self.method.needs
        )
        if alike:
            image = ImageFeatures(*(part.expand(len(rows), *part.shape[1:]) for part in image))
        return image, labels.expand(len(rows), -1)

    def _lines(self, clients: Ints, rows: Ints, predicted: Tensor, loss: Tensor) -> Predictions:
        """The lines of the images `rows` (A, B) of the first A `clients`, -1 for padding."""
        real = rows >= 0
        return Predictions(
            client=np.broadcast_to(clients[: len(rows), None], rows.shape)[real],
            row=rows[real],
            label=self.data.test.labels[rows[real]],
            predicted=predicted.cpu().numpy()[real],
            loss=loss.cpu().numpy()[real],
        )
