"""Accuracy over rounds (the paper's Figure A3) and against a setting (its Figure 3: shots), and partitions."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedotp._text import printable
from fedotp.config import flatten
from fedotp.data import Dataset
from fedotp.data.partition import Partition
from fedotp.errors import FedotpError
from fedotp.report.figure import COLOURS, MARKERS, bare, new_figure
from fedotp.runs.directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {
    "partition.shots": "shots: training images per class",
    "partition.alpha": "Dirichlet α",
    "partition.n_clients": "clients",
    "method.mass": "mass γ",
    "method.reg": "regularisation λ",
    "method.theta": "share of the local prompt θ",
    "prompt.n_ctx": "context vectors s",
    "prompt.kgcoop": "weight of KgCoOp's penalty",
}
_LEAST_SPAN = 4.0  # minimum range of the axis, in per cent
_LOGARITHMIC_FROM = 8.0  # ratio of largest to smallest value


def plot_curves(runs: Sequence[RunDirectory], labels: Sequence[str] | None = None) -> "Figure":
    """Plot mean accuracy over clients per round, one line per run; bands are one standard deviation over clients.

    By default `labels` are the methods, or the names of directories if several runs have the same method. A run without
    rounds (zero-shot CLIP) is a horizontal line; runs without evaluation are skipped.
    """
    evaluations = [list(run.metrics("evaluation")) for run in runs]
    if not any(evaluations):
        raise FedotpError(
            f"{runs[0].path} has no evaluation to draw: it has just started, or its sites report no scores"
        )
    figure = new_figure(7, 4.2)
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot()
    last = max(record["round"] for records in evaluations for record in records)
    titles = labels or [run.config.title for run in runs]
    titles = titles if len(set(titles)) == len(titles) else [run.path.name for run in runs]
    for i, (records, title) in enumerate(zip(evaluations, titles, strict=True)):
        if not records:
            continue
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        rounds = np.array([record["round"] for record in records])
        mean = 100 * np.array([record["accuracy"] for record in records])
        std = 100 * np.array([record["accuracy_std"] for record in records])
        if len(rounds) == 1:
            axes.axhline(mean[0], color=colour, linestyle="--", label=f"{title}  {mean[0]:.1f} %")
            continue
        axes.plot(rounds, mean, color=colour, marker=marker, markersize=4, label=f"{title}  {mean[-1]:.1f} %")
        axes.fill_between(rounds, mean - std, np.minimum(mean + std, 100), color=colour, alpha=0.12, linewidth=0)
    axes.set_xlim(-0.01 * max(last, 1), 1.02 * max(last, 1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    axes.set_ylabel("accuracy of a client, %")
    bare(axes)
    axes.legend(frameon=False, fontsize=9, loc="best")
    axes.set_title("Mean over clients; bands: one standard deviation over clients", fontsize=9, loc="left")
    return figure


@dataclass(frozen=True)
class Line:
    """Accuracies of runs that differ only in one setting and the seed.

    `values` (G,) of the setting, ascending, or () for runs without it, whose accuracy is one number; `mean` and `std`
    (G,) over seeds, std None for a single seed.
    """

    label: str
    values: tuple[float, ...]
    mean: tuple[float, ...]
    std: tuple[float | None, ...]


def lines_against(runs: Sequence[RunDirectory], key: str) -> list[Line]:
    """Return final accuracies of complete `runs` against the setting `key`, a line for each method with its options."""
    repeated = {"seed", "partition.seed"} - {key}
    flat = [{name: value for name, value in flatten(run.config).items() if name not in repeated} for run in runs]
    if not any(key in settings for settings in flat):
        raise FedotpError(f"none of the runs has a setting {key!r}; give a key of config.toml, for example method.mass")
    groups: dict[str, dict[float | None, list[float]]] = {}
    for run, settings in zip(runs, flat, strict=True):
        value = settings.get(key)
        if key in settings and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise FedotpError(f"{run.path}: {key} must be a number, got {value!r}; exclude that run")
        at = float(value) if isinstance(value, (int, float)) else None
        label = _label(run, settings, flat, key)
        groups.setdefault(label, {}).setdefault(at, []).append(float(run.summary["final"]["accuracy"]))
    lines = []
    for label, points in groups.items():
        values = tuple(sorted(value for value in points if value is not None))
        each = [points[value] for value in values] or list(points.values())
        spread = tuple(statistics.stdev(numbers) if len(numbers) > 1 else None for numbers in each)
        lines.append(Line(label, values, tuple(map(statistics.fmean, each)), spread))
    return lines


def plot_against(runs: Sequence[RunDirectory], key: str) -> "Figure":
    """Plot mean accuracy over clients against a setting, a line per method: means over seeds ± standard deviation.

    `runs` are those of a sweep; `key` is for example "partition.shots" (the paper's Figure 3), "method.mass" or
    "partition.alpha". A method without the setting is a horizontal line.
    """
    lines = lines_against(runs, key)
    figure = new_figure(5.6, 3.9)
    axes = figure.add_subplot()
    ticks = sorted({value for line in lines for value in line.values})
    for i, line in enumerate(lines):
        colour, mean = COLOURS[i % len(COLOURS)], [100 * value for value in line.mean]
        if not line.values:
            axes.axhline(mean[0], color=colour, linestyle="--", label=line.label)
            continue
        bars = [0.0 if value is None else 100 * value for value in line.std]
        marker = MARKERS[i % len(MARKERS)]
        axes.errorbar(
            line.values, mean, bars if any(bars) else None, color=colour, marker=marker, capsize=3, label=line.label
        )
    if ticks[0] > 0 and ticks[-1] / ticks[0] >= _LOGARITHMIC_FROM:
        axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{value:g}" for value in ticks])
    axes.minorticks_off()
    axes.set_xlabel(_TITLES.get(key, key))
    low, high = axes.get_ylim()
    if high - low < _LEAST_SPAN:  # noise should not look like a trend
        axes.set_ylim((low + high - _LEAST_SPAN) / 2, (low + high + _LEAST_SPAN) / 2)
    axes.set_ylabel("mean accuracy over clients, %")
    bare(axes)
    axes.legend(frameon=False, fontsize=9, loc="best")
    n_seeds = len({run.config.seed for run in runs})
    note = f"Mean over {n_seeds} seeds; bars: one standard deviation" if n_seeds > 1 else "One seed"
    axes.set_title(note, fontsize=9, loc="left")
    return figure


def _label(run: RunDirectory, settings: Mapping[str, object], every: Sequence[Mapping[str, object]], key: str) -> str:
    """Return the method and the settings in which the run differs from others of the same method, except `key`."""
    alike = [other for other in every if other["method.name"] == settings["method.name"]]
    differing = {
        name: value
        for name, value in settings.items()
        if name != key and any(other.get(name) != value for other in alike)
    }
    options = [f"{name.rpartition('.')[2]} {'none' if value is None else value}" for name, value in differing.items()]
    return ", ".join([run.config.title, *options])


# Partitions -------------------------------------------------------------------------------------------------

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

    settings = partition.settings
    title = f"{partition.dataset}, train: {settings.scheme}"
    title += "" if settings.alpha is None else f", alpha {settings.alpha:g}"
    title += "" if settings.shots is None else f", {settings.shots} shots"
    axes.set_title(_plain(title), fontsize=10)
    axes.set(xlim=(-0.7, n_clients - 0.3), ylim=(n_classes - 0.3, -0.7), ylabel="class")
    axes.set_xlabel(f"client (largest dot: {counts.max():,} images)")
    _name_ticks(axes.set_xticks, [client.name for client in partition.clients], rotation=90)
    _name_ticks(axes.set_yticks, dataset.classes, rotation=0)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    if len(domains) > 1:
        axes.legend(title="domain", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


def _plain(name: str) -> str:
    """Escape a name for matplotlib, which reads text between dollar signs as a formula."""
    return printable(name).replace("$", r"\$")


def _name_ticks(set_ticks: Callable[..., object], names: Sequence[str], *, rotation: int) -> None:
    if len(names) <= _MAX_NAMES:
        set_ticks(range(len(names)), list(map(_plain, names)), rotation=rotation)
    else:
        set_ticks(range(0, len(names), 10))
