"""Metrics of each client's test, each declared once: files, tables and pages follow METRICS."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedotp._text import percent
from fedotp.federation._sampling import Ints

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tested:
    """Predictions of C clients for their n test images of K classes.

    For each image (n,): `client`, the index of its client in 0..C-1, `label`, `predicted`, `loss`.
    """

    client: Ints
    label: Ints
    predicted: Ints
    loss: Floats
    n_clients: int
    n_classes: int

    def mean(self, values: NDArray[np.generic]) -> Floats:
        """Return the mean of `values` (n,) over each client's images: (C,)."""
        sums = np.bincount(self.client, values.astype(np.float64), minlength=self.n_clients)
        return sums / np.bincount(self.client, minlength=self.n_clients)

    def count(self, classes: Ints, among: NDArray[np.bool_] | slice = slice(None)) -> Floats:
        """Count each client's images by their `classes` (n,), of those `among` (n,) only: (C, K)."""
        cells = np.bincount(
            self.client[among] * self.n_classes + classes[among], minlength=self.n_clients * self.n_classes
        )
        return cells.reshape(self.n_clients, self.n_classes).astype(np.float64)

    def hits(self) -> Floats:
        """Count the correct predictions of each client by class: (C, K)."""
        return self.count(self.label, self.label == self.predicted)


@dataclass(frozen=True)
class Metric:
    """A number for each client.

    Args:
        key: name in files: `client_<key>` for the clients' values, `<key>` for their mean.
        title: name in tables and pages.
        of: function from the tests of C clients to values (C,), nan for a client without test images.
        better: direction of better values.
        range: range of valid values; from 0 to 1 it is a share, shown in percent.
        if_wide: omit the metric from tables in a narrow terminal.
    """

    key: str
    title: str
    of: Callable[[Tested], Floats]
    better: Literal["higher", "lower"] = "higher"
    range: tuple[float, float] = (0.0, 1.0)
    if_wide: bool = False

    @property
    def is_share(self) -> bool:
        """True if the metric is shown in percent."""
        return self.range == (0.0, 1.0)

    @property
    def heading(self) -> str:
        """Column title of the metric."""
        return f"{self.title} %" if self.is_share else self.title

    def write(self, value: float | None) -> str:
        """Format a value for a column of the metric."""
        if value is None:
            return "-"
        return percent(value) if self.is_share else f"{value:.3f}"


def balanced_accuracy(tested: Tested) -> Floats:
    """Compute the mean recall over the classes among a client's labels: (C,)."""
    return _over_own_classes(tested, tested.hits(), tested.count(tested.label))


def macro_f1(tested: Tested) -> Floats:
    """Compute the mean F1 over the classes among a client's labels: (C,).

    A prediction of another class lowers recall, but does not add a class whose F1 is 0.
    """
    marked = tested.count(tested.label) + tested.count(tested.predicted)  # 2 TP + FP + FN
    return _over_own_classes(tested, 2 * tested.hits(), marked)


def _over_own_classes(tested: Tested, above: Floats, below: Floats) -> Floats:
    """Return the mean of above / below, both (C, K), over the classes among each client's labels: (C,)."""
    own = tested.count(tested.label) > 0
    return np.divide(above, below, out=np.zeros_like(above), where=own).sum(1) / own.sum(1)


METRICS = {
    metric.key: metric
    for metric in (
        Metric("accuracy", "accuracy", lambda tested: tested.mean(tested.label == tested.predicted)),
        Metric("balanced_accuracy", "balanced accuracy", balanced_accuracy),
        Metric("macro_f1", "macro-F1", macro_f1, if_wide=True),
        Metric("loss", "loss", lambda tested: tested.mean(tested.loss), better="lower", range=(0.0, inf)),
    )
}
"""Metrics by key. Accuracy is first: runs are compared by it, and its spread, worst decile and domains are reported."""
