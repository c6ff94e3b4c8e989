"""The figure and the table of docs/privacy.md.

    python -m recipes.privacy.figures docs/results/privacy.csv docs/figures docs/privacy.md

Intervals are of 95 %, over splits, of the difference from the same method without privacy on the same splits.
"""

import csv
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from recipes.privacy.settings import EPSILONS, SETTINGS, SPLITS

from fedotp.report.figure import COLOURS, MARKERS, bare, new_figure, save_figure
from fedotp.runs.tables import paired

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {"example": "one training image hidden: 5 clients, 400 images each", "site": "one site hidden: 100 sites"}
_SOME = [f"{target:g}" for target in EPSILONS]
_ORDER = list(dict.fromkeys(method for setting in SETTINGS.values() for method in setting.methods))
_PRIOR = "Ridge, with class prior"
_SHOWN = "![Accuracy against epsilon, an image or a site hidden.](figures/privacy.png)"
_BETWEEN = ("<!-- accuracy by epsilon -->", "<!-- end -->")


class Results:
    """What was measured on the splits that count, by unit, method and epsilon."""

    def __init__(self, path: Path) -> None:
        with path.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if int(row["split"]) in SPLITS]
        self._rows = {(row["unit"], row["method"], row["epsilon"], int(row["split"])): row for row in rows}

    def series(self, unit: str, method: str, target: str, what: str = "accuracy") -> list[float]:
        """One number for each split, in order."""
        return [float(self._rows[unit, method, target, split][what]) for split in SPLITS]

    def cost(self, unit: str, method: str, target: str) -> tuple[float, float]:
        """What privacy costs, in points: both ends of the interval, paired by split."""
        with_it, without = (
            {(split, 0): value for split, value in enumerate(self.series(unit, method, each))} for each in (target, "0")
        )
        found = paired(with_it, without)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        return 100 * found.low, 100 * found.high


def _mean(values: list[float]) -> float:
    return 100 * sum(values) / len(values)


def _panel(axes: "Axes", results: Results, unit: str) -> None:
    places = range(len(_SOME))
    for method in SETTINGS[unit].methods:
        number = _ORDER.index(method)
        means = [_mean(results.series(unit, method, target)) for target in _SOME]
        axes.plot(places, means, color=COLOURS[number], marker=MARKERS[number], markersize=4, label=method)
        ends = [results.cost(unit, method, target) for target in _SOME[:-1]]
        low, high = ([means[-1] + end[which] for end in ends] for which in (0, 1))
        axes.fill_between(places[:-1], low, high, color=COLOURS[number], alpha=0.12, linewidth=0)
    for method, name, style in (("Ridge", "zero-shot CLIP", ":"), (_PRIOR, "zero-shot CLIP, with class prior", "--")):
        zero = _mean(results.series(unit, method, "0", "zero_shot"))
        axes.axhline(zero, color=COLOURS[6], linestyle=style, linewidth=1, label=name)
    axes.set_xticks(places, [*_SOME[:-1], "no privacy"])
    axes.set_xlabel("epsilon")
    axes.set_title(TITLES[unit], fontsize=10, loc="left")
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
    bare(axes)


def draw(results: Results, folder: Path) -> Path:
    """Accuracy against epsilon, both units."""
    figure = new_figure(10, 5)
    grid = figure.subplots(1, len(SETTINGS))
    for axes, unit in zip(grid, SETTINGS, strict=True):
        _panel(axes, results, unit)
    grid[0].set_ylabel("accuracy, %")
    return save_figure(figure, folder / "privacy.png")


def table(results: Results) -> str:
    """Without privacy the accuracy; with it the difference in points, with half its interval."""
    lines = [
        "| hidden | method | no privacy, % | " + " | ".join(f"epsilon {e}" for e in _SOME[:-1]) + " | zero-shot, % |"
    ]
    lines.append("|---|---|" + "---:|" * (len(_SOME) + 1))
    for unit, setting in SETTINGS.items():
        for method in setting.methods:
            base, zero_shot = (
                f"{_mean(results.series(unit, method, '0', what)):.1f}" for what in ("accuracy", "zero_shot")
            )
            ends = [results.cost(unit, method, target) for target in _SOME[:-1]]
            cells = [base, *(f"{(low + high) / 2:+.1f} ±{(high - low) / 2:.1f}" for low, high in ends), zero_shot]
            lines.append(f"| one {unit} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Write both."""
    results = Results(Path(sys.argv[1]))
    print(draw(results, Path(sys.argv[2])))
    page = Path(sys.argv[3])
    begin, end = (re.escape(mark) for mark in _BETWEEN)
    text = page.read_text(encoding="utf-8")
    new = f"{_BETWEEN[0]}\n{table(results)}\n\n{_SHOWN}\n{_BETWEEN[1]}"
    page.write_text(re.sub(f"{begin}.*?{end}", lambda _: new, text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
