"""The paper's figure of a partition: clients against classes, one dot per pair."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedotp._text import printable
from fedotp.data import Dataset
from fedotp.data.partition import Partition
from fedotp.report.figure import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MIXED = "#777777"
_MAX_NAMES = 40  # more names would overlap: then every tenth position is numbered
_MIN_AREA = 3.0  # square points: keeps a single image visible


def plot_partition(partition: Partition, dataset: Dataset) -> "Figure":
    """Plot clients x classes: dot area = number of training images, colour = the client's domain."""
    partition.require(dataset)
    counts = partition.counts(dataset)  # (C, K)
    n_clients, n_classes = counts.shape
    width = float(np.clip(2.5 + 0.32 * n_clients, 5, 24))
    height = float(np.clip(2.0 + 0.28 * n_classes, 3.5, 24))
    figure = new_figure(width, height)
    axes = figure.add_subplot()

    cell = 72 * min(0.28, (width - 2) / n_clients, (height - 1.5) / n_classes)  # in points
    areas = np.maximum(counts / counts.max() * cell**2, _MIN_AREA)
    domains = list(dict.fromkeys(client.domain for client in partition.clients))
    for d, domain in enumerate(domains):
        of_domain = np.array([client.domain == domain for client in partition.clients])
        clients, classes = np.nonzero(counts * of_domain[:, None])
        colour = _MIXED if domain is None else COLOURS[d % len(COLOURS)]
        axes.scatter(clients, classes, s=areas[clients, classes], c=colour, linewidths=0)
        axes.scatter([], [], s=40, c=colour, linewidths=0, label=_plain(domain or ""))

    axes.set_title(_plain(_title(partition)), fontsize=10)
    axes.set(xlim=(-0.7, n_clients - 0.3), ylim=(n_classes - 0.3, -0.7), ylabel="class")
    axes.set_xlabel(f"client (largest dot: {counts.max():,} images)")
    _name_ticks(axes.set_xticks, [client.name for client in partition.clients], rotation=90)
    _name_ticks(axes.set_yticks, dataset.classes, rotation=0)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    if len(domains) > 1:
        axes.legend(title="domain", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def _title(partition: Partition) -> str:
    settings = partition.settings
    parts = [f"{partition.dataset}, train: {settings.scheme}"]
    if settings.alpha is not None:
        parts.append(f"alpha {settings.alpha:g}")
    if settings.shots is not None:
        parts.append(f"{settings.shots} shots")
    return ", ".join(parts)


def _plain(name: str) -> str:
    """Escape a name for matplotlib, which reads text between dollar signs as a formula."""
    return printable(name).replace("$", r"\$")


def _name_ticks(set_ticks: Callable[..., object], names: Sequence[str], *, rotation: int) -> None:
    if len(names) <= _MAX_NAMES:
        set_ticks(range(len(names)), list(map(_plain, names)), rotation=rotation)
    else:
        set_ticks(range(0, len(names), 10))
