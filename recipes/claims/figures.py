"""The figures of docs/claims.md.

    python -m recipes.claims.figures docs/results/claims docs/figures

Bands are 95 % intervals over splits. Where methods are compared they are of the paired difference, not of each one's
accuracy: how easy a split is for all is not in them.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recipes.claims.claims import called, masses
from recipes.claims.data import ZERO_SHOT, Results, nothing
from recipes.claims.judge import Series
from recipes.claims.page import FIELD
from recipes.claims.settings import ALPHAS, BASELINES, CLASSICAL, FEDOTP, MASSES, SHARED, SHOTS

from fedotp.report.figure import COLOURS, MARKERS, bare, new_figure, save_figure
from fedotp.runs.tables import paired

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def line(
    axes: "Axes", place: int, label: str, values: Sequence[float], points: Sequence[tuple[Series, Series]]
) -> None:
    """One line with its band: for each value the paired difference of two series, in points."""
    found = [paired(*pair) for pair in points]
    mean, low, high = ([100 * getattr(each, end) for each in found] for end in ("mean", "low", "high"))
    colour = COLOURS[place % len(COLOURS)]
    dashed = "--" if place >= len(COLOURS) else "-"
    axes.plot(values, mean, dashed, color=colour, marker=MARKERS[place % len(MARKERS)], markersize=4, label=label)
    axes.fill_between(values, low, high, color=colour, alpha=0.15, linewidth=0)


def _panel(axes: "Axes", title: str, x: str, y: str, ticks: Sequence[float], *, logarithmic: bool) -> None:
    if logarithmic:
        axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    bare(axes)


def mass_figure(results: Results) -> "Figure":
    """Accuracy by mass, less that of classical transport."""
    by_mass = masses(results)
    figure = new_figure(5.6, 3.6)
    axes = figure.add_subplot()
    line(axes, 0, "FedOTP", MASSES, [(by_mass[mass], by_mass[1.0]) for mass in MASSES])
    axes.axhline(0, color="#888888", linewidth=0.8)
    _panel(axes, "20 clients, Dirichlet 0.3", "mass γ", "points above γ = 1", MASSES, logarithmic=False)
    return figure


def _against_fedotp(
    axes: "Axes", results: Results, setting: str, methods: Sequence[str], values: Sequence[float]
) -> None:
    for place, method in enumerate(methods):
        points = [(results.series(setting, method, value), results.series(setting, FEDOTP, value)) for value in values]
        line(axes, place, called(method), values, points)
    axes.axhline(0, color="black", linewidth=1.2, label="FedOTP")


def shots_figure(results: Results) -> "Figure":
    """Every method less FedOTP, by shots; above, what FedOTP scores."""
    figure = new_figure(10, 6.4)
    (level, below) = figure.subplots(2, 2, height_ratios=(1, 2), sharex=True)
    shown = (("cifar10-mini", "classes-shots", BASELINES), ("emoji", "emoji-shots", BASELINES[:2]))
    for column, (data, setting, methods) in enumerate(shown):
        own: Mapping[int, Series] = {shots: results.series(setting, FEDOTP, shots) for shots in SHOTS}
        zero = {shots: results.series(setting, ZERO_SHOT, shots) for shots in SHOTS}
        for place, of in ((6, own), (5, zero)):
            name = called(FEDOTP if of is own else ZERO_SHOT)
            line(level[column], place, name, SHOTS, [(of[shots], nothing(of[shots])) for shots in SHOTS])
        _panel(level[column], data, "", "accuracy, %", SHOTS, logarithmic=True)
        _against_fedotp(below[column], results, setting, methods, SHOTS)
        _panel(below[column], "the others less FedOTP", "shots", "points", SHOTS, logarithmic=True)
    level[0].legend(fontsize=8, frameon=False)
    below[0].legend(fontsize=8, frameon=False, ncols=2, loc="best")
    return figure


def alpha_figure(results: Results) -> "Figure":
    """Accuracy by alpha, and what the others are behind or ahead of FedOTP."""
    figure = new_figure(10, 4)
    level, below = figure.subplots(1, 2)
    for place, method in enumerate((*SHARED, FEDOTP, ZERO_SHOT)):
        of = [results.series("alpha", method, alpha) for alpha in ALPHAS]
        line(level, 6 if method == FEDOTP else place, called(method), ALPHAS, [(each, nothing(each)) for each in of])
    _panel(level, "accuracy", "Dirichlet α", "accuracy, %", ALPHAS, logarithmic=True)
    level.legend(fontsize=8, frameon=False)
    _against_fedotp(below, results, "alpha", SHARED, ALPHAS)
    pairs = [(results.series("alpha-classical", CLASSICAL, a), results.series("alpha", FEDOTP, a)) for a in ALPHAS[1:]]
    line(below, 2, called(CLASSICAL), ALPHAS[1:], pairs)
    _panel(below, "the others less FedOTP", "Dirichlet α", "points", ALPHAS, logarithmic=True)
    below.legend(fontsize=8, frameon=False)
    return figure


def main() -> None:
    """Draw them."""
    source, target = (Path(argument) for argument in sys.argv[1:])
    results = Results(source, FIELD)
    drawn = {"mass": mass_figure, "shots": shots_figure, "alpha": alpha_figure}
    for name, draw in drawn.items():
        save_figure(draw(results), target / f"claims-{name}.png")


if __name__ == "__main__":
    main()
