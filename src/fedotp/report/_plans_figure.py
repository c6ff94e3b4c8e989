"""What transport does, as a figure."""

from typing import TYPE_CHECKING

import numpy as np

from fedotp.report._figure import COLOURS, MARKERS, bare, new_figure
from fedotp.report._plans import PlanStatistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_plans(shown: PlanStatistics, title: str = "") -> "Figure":
    """Against the mass: entropy of the plans, patches left out and overlap, and accuracy beside that of no transport.

    Definitions are those of `fedotp.report.PlanStatistics`. The band around the accuracy with the uniform plan is one
    standard error of a share of that many images.
    """
    figure = new_figure(10.5, 3.3)
    spread, use, worth = figure.subplots(1, 3)
    for n, kind in enumerate(shown.prompts):
        spread.plot(shown.masses, shown.entropy[n], color=COLOURS[n], marker=MARKERS[n], label=f"{kind} prompt")
    spread.axhline(1, color="#555555", linestyle="--", linewidth=1, label="uniform plan")
    spread.set_title("Entropy of a prompt's plan / log V", fontsize=9, loc="left")
    use.plot(shown.masses, shown.unassigned, color=COLOURS[2], marker=MARKERS[2], label="patches left out")
    if shown.overlap is not None:
        use.plot(shown.masses, shown.overlap, color=COLOURS[3], marker=MARKERS[3], label="overlap, global and local")
    use.set_title("Shares", fontsize=9, loc="left")
    for axes in (spread, use):
        axes.set_ylim(-0.03, 1.06)
    _accuracy(worth, shown)
    for axes in (spread, use, worth):
        axes.set_xlabel("mass γ")
        axes.set_xticks(shown.masses)
        bare(axes)
        axes.legend(frameon=False, fontsize=8, loc="best")
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def _accuracy(axes: "Axes", shown: PlanStatistics) -> None:
    uniform = 100 * shown.accuracy_uniform
    error = 100 * np.sqrt(shown.accuracy_uniform * (1 - shown.accuracy_uniform) / shown.n_images)
    accuracy = 100 * np.array(shown.accuracy)
    axes.axhspan(uniform - error, uniform + error, color="#555555", alpha=0.12, linewidth=0)
    axes.axhline(uniform, color="#555555", linestyle="--", linewidth=1, label="uniform plan, ± 1 s.e.")
    axes.plot(shown.masses, accuracy, color=COLOURS[0], marker=MARKERS[0], label="mass changed")
    if shown.mass_trained is not None:
        point = 100 * shown.accuracy_trained
        axes.plot([shown.mass_trained], [point], "*", color=COLOURS[1], markersize=13, label="as trained")
    middle = (min(accuracy.min(), uniform) + max(accuracy.max(), uniform)) / 2
    reach = max(2.5, float(max(np.abs(accuracy - middle).max(), abs(uniform - middle))) * 1.6)
    axes.set_ylim(middle - reach, min(middle + reach, 100.4))
    axes.set_title("Accuracy, %, same prompts", fontsize=9, loc="left")
