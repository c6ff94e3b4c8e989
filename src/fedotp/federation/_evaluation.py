"""How well clients classify, from their predictions or from what real sites tell."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedotp.federation._evaluate import Predictions
from fedotp.federation._metrics import METRICS, Floats, Tested
from fedotp.federation._random import Ints


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How well the clients `clients` (C,) classify their own test images.

    Per client (C,): `n` test images, and `values` by the key of each metric, nan where a client does not tell it.
    Per class (K,): `class_accuracy`, nan for a class without test image. `domain_accuracy`: mean over the clients of
    each domain.
    """

    clients: Ints
    n: Ints
    values: dict[str, Floats]
    class_accuracy: Floats
    domain_accuracy: dict[str, tuple[float, float, int]]

    def __repr__(self) -> str:
        told = f"accuracy {100 * self.mean:.1f} % ± {100 * self.std:.1f}" if len(self.clients) else "no accuracy"
        return f"<Evaluation of {len(self.clients):,} clients: {told}>"

    @property
    def accuracy(self) -> Floats:
        """Of each client (C,)."""
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
        """Mean accuracy of the worst tenth of the clients, at least one."""
        k = max(1, len(self.accuracy) // 10)
        return float(np.sort(self.accuracy)[:k].mean())

    @property
    def pooled(self) -> float:
        """Accuracy over all test images, whosever they are."""
        return float((self.accuracy * self.n).sum() / self.n.sum())

    def totals(self) -> dict[str, float]:
        """The numbers over clients, of a metric the mean of those that tell it."""
        told = {key: values[~np.isnan(values)] for key, values in self.values.items()}
        return {
            "accuracy": self.mean,
            "accuracy_std": self.std,
            "accuracy_worst_decile": self.worst_decile,
            "accuracy_min": float(self.accuracy.min()),
            "accuracy_pooled": self.pooled,
            **{key: float(values.mean()) for key, values in told.items() if len(values)},
        }

    def of_client(self, place: int) -> dict[str, float]:
        """What the client at `place` among `clients` tells, by metric."""
        return {key: float(values[place]) for key, values in self.values.items() if not np.isnan(values[place])}

    def domains(self) -> dict[str, dict[str, float]]:
        """Mean and standard deviation of accuracy over the clients of each domain."""
        return {
            name: {"accuracy": mean, "accuracy_std": std, "clients": n}
            for name, (mean, std, n) in self.domain_accuracy.items()
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Evaluation":
        """Read what `as_dict` gives; a metric that is not in it, from before there was such a one, is nan."""
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
        """Everything, as JSON has it; null stands for what a client does not tell, and a class without test image."""
        return {
            **self.totals(),
            "clients": self.clients.tolist(),
            "n": self.n.tolist(),
            **{f"client_{key}": _to_json(values) for key, values in self.values.items()},
            "class_accuracy": _to_json(self.class_accuracy),
            "domains": self.domains(),
        }


def evaluate_predictions(predictions: Predictions, n_classes: int, domains: tuple[str | None, ...]) -> Evaluation:
    """Count. Clients without test images do not appear; `domains` are those of all clients, None where mixed."""
    clients, index = np.unique(predictions.client, return_inverse=True)
    label, predicted = predictions.label, predictions.predicted
    tested = Tested(index, label, predicted, predictions.loss, len(clients), n_classes)
    values = {key: metric.of(tested) for key, metric in METRICS.items()}
    with np.errstate(invalid="ignore"):
        right = np.bincount(label, label == predicted, minlength=n_classes)
        class_accuracy = right / np.bincount(label, minlength=n_classes)
    return Evaluation(
        clients=clients,
        n=np.bincount(index, minlength=len(clients)),
        values=values,
        class_accuracy=class_accuracy,
        domain_accuracy=by_domain(clients, values["accuracy"], domains),
    )


def by_domain(clients: Ints, accuracy: Floats, domains: tuple[str | None, ...]) -> dict[str, tuple[float, float, int]]:
    """Mean, standard deviation and number of the accuracies (C,) of the `clients` (C,) of each domain."""
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
