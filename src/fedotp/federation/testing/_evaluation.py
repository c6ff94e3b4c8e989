"""Predictions of the clients' classifiers on their test images, and evaluations of these or of real sites' reports."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp.clip import ImageFeatures
from fedotp.federation._data import FederatedData, ResidentImages
from fedotp.federation._metrics import METRICS, Floats, Tested
from fedotp.federation._sampling import Ints
from fedotp.federation._settings import Settings
from fedotp.federation.testing._predict import Predictor, ResidentTester
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
        """Concatenate the lines of `parts`."""
        none = np.empty(0, np.int64)
        parts = [cls(none, none, none, none, np.empty(0)), *parts]
        columns = ("client", "row", "label", "predicted", "loss")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))

    def at(self, at: Ints | NDArray[np.bool_]) -> "Predictions":
        """Return the lines at `at`, indices or a mask."""
        return Predictions(**{name: values[at] for name, values in vars(self).items()})

    def in_order(self) -> "Predictions":
        """Return the lines sorted by client and row."""
        return self.at(np.lexsort((self.row, self.client)))


class LocalTester:
    """Tests of clients' classifiers on their own images, side by side as in `LocalTrainer`."""

    def __init__(self, method: Method, task: Task, data: FederatedData, settings: Settings) -> None:
        """Prepare tests; `data` must contain the images of all clients to test."""
        self.method = method
        self.task = task
        self.data = data
        self.settings = settings
        self.batch_size = settings.evaluation.batch_size
        images = ResidentImages.of(data.test, task.device)
        can_record = images is not None and not method.uses_memory
        self._resident = ResidentTester(method, task, images, self.batch_size) if images and can_record else None

    def predictor(self, clients: Ints, params: Parameters) -> Predictor:
        """Return the predictor of `clients` (C,) with `params` (C, ...) and, if needed, their training images."""
        task = self.task
        memory = self.data.memory(clients, task.device, task.dtype) if self.method.uses_memory else None
        prior = self._prior(clients)
        return Predictor.of(self.method, task, params, len(clients), memory=memory, prior=prior)

    def _prior(self, clients: Ints) -> Tensor | None:
        """Return the class prior (C, K) of `clients` with the factor in the settings; None for none."""
        evaluation = self.settings.evaluation
        prior = self.data.class_prior(clients, len(self.task.classes), evaluation.strength, evaluation.smoothing)
        return None if prior is None else prior.to(self.task.device)

    def class_prior(self, client: int) -> dict[str, Any]:
        """Return the class prior of one client for JSON: strength, smoothing, counts (K,)."""
        evaluation = self.settings.evaluation
        counts = self.data.class_counts(np.array([client]), len(self.task.classes))
        return {"strength": evaluation.strength, "smoothing": evaluation.smoothing, "counts": counts[0].tolist()}

    def predict(self, clients: Ints, params: Parameters) -> Predictions:
        """Predict the test images of `clients` (C,) with `params` (C, ...)."""
        falling = np.argsort(-self.data.test.sizes(clients), kind="stable")
        rows = list(self._batches(clients[falling]))
        order = torch.from_numpy(falling).to(self.task.device)
        found = None
        if self._resident and rows:
            found = self._resident.predict(params, order, rows, self._prior(clients))
        if found is None:
            predictor = self.predictor(clients, params).rows(order)
            judged = [predictor.rows(slice(len(part))).judge(*self._read(part)) for part in rows]
            found = [classes for classes, _ in judged], [loss for _, loss in judged]
        return Predictions.join(  # the only GPU synchronisation
            [self._lines(clients[falling], *part) for part in zip(rows, *found, strict=True)]
        )

    def _batches(self, clients: Ints) -> Iterator[Ints]:
        """Yield rows (A, B) of the test images of `clients`, in decreasing order of their numbers; -1 for padding."""
        sizes = self.data.test.sizes(clients)
        for start in range(0, int(sizes.max(initial=0)), self.batch_size):
            n_active = int((sizes > start).sum())
            places = np.arange(start, min(start + self.batch_size, int(sizes[0])))
            places = np.where(places[None] < sizes[:n_active, None], places[None], -1)
            yield self.data.test.rows(clients[:n_active], places)

    def _read(self, rows: Ints) -> tuple[ImageFeatures, Tensor]:
        """Read features and labels of `rows` (A, B); images common to all clients are read once."""
        alike = len(rows) > 1 and bool((rows == rows[0]).all())
        image, labels = self.data.test.read(
            rows[:1] if alike else rows, 0, self.task.device, self.task.dtype, self.method.needs
        )
        if alike:
            image = ImageFeatures(*(part.expand(len(rows), *part.shape[1:]) for part in image))
        return image, labels.expand(len(rows), -1)

    def _lines(self, clients: Ints, rows: Ints, predicted: Tensor, loss: Tensor) -> Predictions:
        """Return the lines of the images `rows` (A, B) of the first A `clients`, -1 for padding."""
        real = rows >= 0
        return Predictions(
            client=np.broadcast_to(clients[: len(rows), None], rows.shape)[real],
            row=rows[real],
            label=self.data.test.labels[rows[real]],
            predicted=predicted.cpu().numpy()[real],
            loss=loss.cpu().numpy()[real],
        )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Metrics of `clients` (C,) on their own test images.

    Per client (C,): number `n` of test images, and `values` by metric, nan if unknown. Per class (K,):
    `class_accuracy`, nan for a class without test images. `domain_accuracy`: by domain, over its clients.
    """

    clients: Ints
    n: Ints
    values: dict[str, Floats]
    class_accuracy: Floats
    domain_accuracy: dict[str, tuple[float, float, int]]

    @classmethod
    def of(cls, predictions: Predictions, n_classes: int, domains: tuple[str | None, ...]) -> "Evaluation":
        """Evaluate predictions; clients without test images are omitted. `domains` are those of all clients."""
        clients, index = np.unique(predictions.client, return_inverse=True)
        label, predicted = predictions.label, predictions.predicted
        tested = Tested(index, label, predicted, predictions.loss, len(clients), n_classes)
        values = {key: metric.of(tested) for key, metric in METRICS.items()}
        n = np.bincount(index, minlength=len(clients))
        with np.errstate(invalid="ignore"):
            right = np.bincount(label, label == predicted, minlength=n_classes)
            class_accuracy = right / np.bincount(label, minlength=n_classes)
        return cls(clients, n, values, class_accuracy, _by_domain(clients, values["accuracy"], domains))

    @classmethod
    def of_values(
        cls, clients: Ints, n: Ints, values: dict[str, Floats], n_classes: int, domains: tuple[str | None, ...]
    ) -> "Evaluation":
        """Create an evaluation from the metrics of `clients` (C,) alone, without values of classes."""
        by_domain = _by_domain(clients, values["accuracy"], domains)
        return cls(clients, n, values, np.full(n_classes, np.nan), by_domain)

    def __repr__(self) -> str:
        return f"<Evaluation of {len(self.clients):,} clients: {self.text if len(self.clients) else 'no accuracy'}>"

    @property
    def text(self) -> str:
        """Mean and standard deviation of accuracy, for display."""
        return f"accuracy {100 * self.mean:.1f} % ± {100 * self.std:.1f}"

    @property
    def accuracy(self) -> Floats:
        """Accuracy of each client (C,)."""
        return self.values["accuracy"]

    @property
    def mean(self) -> float:
        """Mean accuracy over clients, the paper's number."""
        return float(self.accuracy.mean())

    @property
    def std(self) -> float:
        """Standard deviation of accuracy over clients."""
        return float(self.accuracy.std())

    @property
    def worst_decile(self) -> float:
        """Mean accuracy of the worst 10 % of the clients, at least one."""
        k = max(1, len(self.accuracy) // 10)
        return float(np.sort(self.accuracy)[:k].mean())

    @property
    def pooled(self) -> float:
        """Accuracy over all test images of all clients."""
        return float((self.accuracy * self.n).sum() / self.n.sum())

    def totals(self) -> dict[str, float]:
        """Return aggregates over clients: statistics of accuracy, and the mean of known values of each metric."""
        known = {key: values[~np.isnan(values)] for key, values in self.values.items()}
        return {
            "accuracy": self.mean,
            "accuracy_std": self.std,
            "accuracy_worst_decile": self.worst_decile,
            "accuracy_min": float(self.accuracy.min()),
            "accuracy_pooled": self.pooled,
            **{key: float(values.mean()) for key, values in known.items() if len(values)},
        }

    def of_client(self, place: int) -> dict[str, float]:
        """Return the known metrics of the client at index `place` of `clients`."""
        return {key: float(values[place]) for key, values in self.values.items() if not np.isnan(values[place])}

    def domains(self) -> dict[str, dict[str, float]]:
        """Return the mean and standard deviation of accuracy over the clients of each domain."""
        return {
            name: {"accuracy": mean, "accuracy_std": std, "clients": n}
            for name, (mean, std, n) in self.domain_accuracy.items()
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Evaluation":
        """Parse the result of `as_dict`; metrics missing in older results are nan."""
        domains = values["domains"].items()
        unknown = [None] * len(values["clients"])
        return cls(
            clients=np.array(values["clients"], np.int64),
            n=np.array(values["n"], np.int64),
            values={key: _from_json(values.get(f"client_{key}", unknown)) for key in METRICS},
            class_accuracy=_from_json(values["class_accuracy"]),
            domain_accuracy={name: (d["accuracy"], d["accuracy_std"], d["clients"]) for name, d in domains},
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON; null for an unknown metric and for a class without test images."""
        return {
            **self.totals(),
            "clients": self.clients.tolist(),
            "n": self.n.tolist(),
            **{f"client_{key}": _to_json(values) for key, values in self.values.items()},
            "class_accuracy": _to_json(self.class_accuracy),
            "domains": self.domains(),
        }


def _by_domain(clients: Ints, accuracy: Floats, domains: tuple[str | None, ...]) -> dict[str, tuple[float, float, int]]:
    """Return mean, standard deviation and number of the accuracies (C,) of `clients` (C,) by domain."""
    groups: dict[str, list[float]] = {}
    for client, value in zip(clients, accuracy, strict=True):
        domain = domains[client]
        if domain is not None:
            groups.setdefault(domain, []).append(float(value))
    return {name: (float(np.mean(values)), float(np.std(values)), len(values)) for name, values in groups.items()}


def _to_json(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def _from_json(values: list[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)
