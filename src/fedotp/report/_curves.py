"""Accuracy over rounds (the paper's Figure A3)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedotp.errors import FedotpError
from fedotp.report._figure import COLOURS, MARKERS, bare, new_figure
from fedotp.runs import RunDirectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_curves(runs: Sequence[RunDirectory], labels: Sequence[str] | None = None) -> "Figure":
    """Mean accuracy over clients after each round, one line per run, the band one standard deviation over clients.

    A run without rounds (zero-shot CLIP) is a level line; one that was never evaluated has none.
    """
    evaluations = [list(run.metrics("evaluation")) for run in runs]
    if not any(evaluations):
        raise FedotpError(f"{runs[0].path} has no evaluation to draw: it has just begun, or its sites tell no scores")
    figure = new_figure(7, 4.2)
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot()
    last = max(record["round"] for records in evaluations for record in records)
    titles = labels or [run.config.title for run in runs]
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
