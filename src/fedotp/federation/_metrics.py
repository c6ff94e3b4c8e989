"""Numbers for a table, from predictions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedotp.federation._evaluate import Predictions
from fedotp.federation._random import Ints

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How well the clients `clients` (C,) classify their own test images.

    Per client (C,): `n` test images, `accuracy`, `macro_f1` (over the classes among its labels or predictions),
    `loss`. Per class (K,): `class_accuracy`, nan for a class without test image. `domain_accuracy`: mean over the
    clients of each domain.
    """

    clients: Ints
    n: Ints
    accuracy: Floats
    macro_f1: Floats
    loss: Floats
    class_accuracy: Floats
    domain_accuracy: dict[str, tuple[float, float, int]]

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
        """Mean accuracy of the worst tenth of the clients, at least one."""
        k = max(1, len(self.accuracy) // 10)
        return float(np.sort(self.accuracy)[:k].mean())

    @property
    def pooled(self) -> float:
        """Accuracy over all test images, whosever they are."""
        return float((self.accuracy * self.n).sum() / self.n.sum())

    def totals(self) -> dict[str, float]:
        """The numbers over clients."""
        return {
            "accuracy": self.mean,
            "accuracy_std": self.std,
            "accuracy_worst_decile": self.worst_decile,
            "accuracy_min": float(self.accuracy.min()),
            "accuracy_pooled": self.pooled,
            "macro_f1": float(self.macro_f1.mean()),
            "loss": float(self.loss.mean()),
        }

    def domains(self) -> dict[str, dict[str, float]]:
        """Mean and standard deviation of accuracy over the clients of each domain."""
        return {
            name: {"accuracy": mean, "accuracy_std": std, "clients": n}
            for name, (mean, std, n) in self.domain_accuracy.items()
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Evaluation":
        """Read what `as_dict` gives."""
        by_class = [np.nan if value is None else value for value in values["class_accuracy"]]
        domains = values["domains"].items()
        return cls(
            clients=np.array(values["clients"], np.int64),
            n=np.array(values["n"], np.int64),
            accuracy=np.array(values["client_accuracy"], np.float64),
            macro_f1=np.array(values["client_macro_f1"], np.float64),
            loss=np.array(values["client_loss"], np.float64),
            class_accuracy=np.array(by_class, np.float64),
            domain_accuracy={name: (d["accuracy"], d["accuracy_std"], d["clients"]) for name, d in domains},
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it; in class_accuracy null stands for a class without test image."""
        by_class = [None if np.isnan(value) else float(value) for value in self.class_accuracy]
        return {
            **self.totals(),
            "clients": self.clients.tolist(),
            "n": self.n.tolist(),
            "client_accuracy": self.accuracy.tolist(),
            "client_macro_f1": self.macro_f1.tolist(),
            "client_loss": self.loss.tolist(),
            "class_accuracy": by_class,
            "domains": self.domains(),
        }


def evaluate_predictions(predictions: Predictions, n_classes: int, domains: tuple[str | None, ...]) -> Evaluation:
    """Count. Clients without test images do not appear; `domains` are those of all clients, None where mixed."""
    clients, index = np.unique(predictions.client, return_inverse=True)
    right = (predictions.label == predictions.predicted).astype(np.float64)
    n = np.bincount(index, minlength=len(clients))
    accuracy = np.bincount(index, right, minlength=len(clients)) / n
    of_class = np.bincount(predictions.label, minlength=n_classes)
    with np.errstate(invalid="ignore"):
        class_accuracy = np.bincount(predictions.label, right, minlength=n_classes) / of_class
    return Evaluation(
        clients=clients,
        n=n,
        accuracy=accuracy,
        macro_f1=macro_f1(predictions.label, predictions.predicted, index, len(clients), n_classes),
        loss=np.bincount(index, predictions.loss, minlength=len(clients)) / n,
        class_accuracy=class_accuracy,
        domain_accuracy=by_domain(clients, accuracy, domains),
    )


def by_domain(clients: Ints, accuracy: Floats, domains: tuple[str | None, ...]) -> dict[str, tuple[float, float, int]]:
    """Mean, standard deviation and number of the accuracies (C,) of the `clients` (C,) of each domain."""
    groups: dict[str, list[float]] = {}
    for client, value in zip(clients, accuracy, strict=True):
        domain = domains[client]
        if domain is not None:
            groups.setdefault(domain, []).append(float(value))
    return {name: (float(np.mean(values)), float(np.std(values)), len(values)) for name, values in groups.items()}


def macro_f1(labels: Ints, predicted: Ints, client: Ints, n_clients: int, n_classes: int) -> Floats:
    """Mean F1 over the classes that are among a client's labels or predictions, as scikit-learn has it: (C,)."""

    def table(classes: Ints) -> Floats:
        cells = np.bincount(client * n_classes + classes, minlength=n_clients * n_classes)
        return cells.reshape(n_clients, n_classes).astype(np.float64)

    right = labels == predicted
    hits = np.bincount(client[right] * n_classes + labels[right], minlength=n_clients * n_classes)
    hits = hits.reshape(n_clients, n_classes)
    marked = table(labels) + table(predicted)  # 2 TP + FP + FN
    f1 = np.divide(2 * hits, marked, out=np.zeros_like(marked), where=marked > 0)
    return f1.sum(1) / np.maximum((marked > 0).sum(1), 1)
