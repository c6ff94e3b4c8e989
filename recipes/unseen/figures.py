"""The figures of docs/unseen-classes.md, and its numbers as tables on the terminal.

python -m recipes.unseen.figures
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from recipes.unseen.study import ABLATED_AT, MASSES, OUT, ROUNDS
from recipes.unseen.table import Lines, differences

from fedotp.report.figure import COLOURS, MARKERS, bare, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VIEWS = ("local", "base", "novel")
FOLDER = Path("docs/figures")
LAST = max(ROUNDS)
SHOWN = (
    ("FedOTP", "fedotp", ""),
    ("its global prompt", "fedotp", 0),
    ("its local prompt", "fedotp", 1),
    ("PromptFL", "promptfl", ""),
    ("CoOp", "coop", ""),
)
"""What curves show: a label, a method, and where its dial is turned to."""
SCHEMES = {"pairs": "two classes a client", "dirichlet": "Dirichlet 0.3", "iid": "all classes alike"}


def _curve(axes: "Axes", number: int, x: list[float], some: list[Lines], zero: Lines, name: str, label: str) -> None:
    """Means, and as a band the intervals of their differences from zero-shot."""
    mean, low, high = zip(*(lines.band(name, zero) for lines in some), strict=True)
    axes.plot(x, mean, color=COLOURS[number], marker=MARKERS[number], markersize=4, label=label)
    axes.fill_between(x, low, high, color=COLOURS[number], alpha=0.12, linewidth=0)


def rounds(lines: Lines, folder: Path) -> Path:
    """Accuracy in three views against rounds, two classes a client."""
    data = lines.values("data")
    figure = new_figure(9.6, 2.9 * len(data))
    grid = figure.subplots(len(data), 3, squeeze=False)
    x = lines.where(method="fedotp").numbers("round")
    places = [float(place) for place in range(len(x))]
    for row, name in zip(grid, data, strict=True):
        some = lines.where(data=name, scheme="pairs", mass="")
        zero = some.where(method="zeroshot")
        for axes, view in zip(row, VIEWS, strict=True):
            for number, (label, method, dial) in enumerate(SHOWN):
                own = some.where(method=method, lr=ABLATED_AT, dial=dial)
                _curve(axes, number, places, [own.where(round=at) for at in x], zero, view, label)
            axes.axhline(zero.mean(view), color=COLOURS[6], linestyle=":", label="zero-shot")
            axes.set_xticks(places, [f"{number:g}" for number in x])
            axes.set_title(f"{name}: {view}", fontsize=10)
            bare(axes)
        row[0].set_ylabel("accuracy %")
    for axes in grid[-1]:
        axes.set_xlabel("rounds")
    grid[0, 0].legend(fontsize=7)
    return save_figure(figure, folder / "unseen-rounds.png")


def dial(lines: Lines, folder: Path) -> Path:
    """Accuracy in three views against the dial, after the last round."""
    panels = [(data, scheme) for data in lines.values("data") for scheme in lines.where(data=data).values("scheme")]
    columns = min(3, len(panels))
    figure = new_figure(max(3.2 * columns, 4.6), 2.9 * -(-len(panels) // columns))
    grid = figure.subplots(-(-len(panels) // columns), columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, (data, scheme) in zip(grid, panels, strict=False):
        some = lines.where(data=data, scheme=scheme, method="fedotp", lr=ABLATED_AT, round=LAST, mass="")
        zero, positions = lines.where(data=data, scheme=scheme, method="zeroshot"), some.numbers("dial")
        for number, view in enumerate(VIEWS):
            _curve(axes, number, positions, [some.where(dial=at) for at in positions], zero, view, view)
            axes.plot([1.2], [some.where(dial="confidence").mean(view)], MARKERS[number], color=COLOURS[number])
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1, 1.2], ["0\nglobal", "", "0.5", "", "1\nlocal", "by\nconf."], fontsize=8)
        axes.set_title(f"{data}, {SCHEMES[scheme]}", fontsize=9)
        bare(axes)
    grid[0].set_ylabel("accuracy %")
    grid[0].legend(fontsize=8)
    return save_figure(figure, folder / "unseen-dial.png")


def mechanism(lines: Lines, folder: Path) -> Path:
    """What becomes of images of other clients' classes, against the dial."""
    data = lines.values("data")
    figure = new_figure(4.2 * len(data), 3.1)
    grid = figure.subplots(1, len(data), squeeze=False)[0]
    words = {
        "masked": "right, own names left out",
        "other": "right, all base names",
        "claimed": "taken for an own class",
    }
    for axes, name in zip(grid, data, strict=True):
        some = lines.where(data=name, scheme="pairs", method="fedotp", lr=ABLATED_AT, round=LAST, mass="")
        zero, positions = lines.where(data=name, scheme="pairs", method="zeroshot"), some.numbers("dial")
        for number, (measured, label) in enumerate(words.items()):
            _curve(axes, number, positions, [some.where(dial=at) for at in positions], zero, measured, label)
        axes.set_title(f"{name}: images of other clients' classes", fontsize=9)
        axes.set_xlabel("dial: global (0) to local (1)")
        bare(axes)
    grid[0].set_ylabel("%")
    grid[0].legend(fontsize=8)
    return save_figure(figure, folder / "unseen-mechanism.png")


def rates(lines: Lines, folder: Path) -> Path:
    """Accuracy in three views against the learning rate, after the last round."""
    zero = lines.where(data="cifar10-mini", scheme="pairs", method="zeroshot")
    some = lines.where(data="cifar10-mini", scheme="pairs", round=LAST, mass="")
    figure = new_figure(9.6, 2.9)
    grid = figure.subplots(1, 3)
    at = some.where(method="fedotp").numbers("lr")
    for axes, view in zip(grid, VIEWS, strict=True):
        for number, (label, method, dial) in enumerate(SHOWN):
            own = some.where(method=method, dial=dial)
            _curve(axes, number, at, [own.where(lr=rate) for rate in at], zero, view, label)
        axes.set_xscale("log")
        axes.set_xlabel("learning rate")
        axes.set_title(view, fontsize=10)
        bare(axes)
    grid[0].set_ylabel("accuracy %")
    grid[0].legend(fontsize=7)
    return save_figure(figure, folder / "unseen-rates.png")


def tables(lines: Lines) -> None:
    """Print the tables of the page, as Markdown."""
    for data in lines.values("data"):
        for scheme in lines.where(data=data).values("scheme"):
            _table(lines.where(data=data, scheme=scheme), f"{data}, {SCHEMES[scheme]}")


def _table(some: Lines, title: str) -> None:
    zero = some.where(method="zeroshot")
    print(f"\n{title}\n\n| | lr | local | base | novel | other | masked | claimed | less zero-shot |")
    print(f"|---|---|{'---:|' * 7}")
    last = some.where(round=LAST)
    for method in last.values("method"):
        for rate in last.where(method=method).values("lr"):
            own = last.where(method=method, lr=rate)
            positions = [("", "")] + [(at, "") for at in own.values("dial") if at]
            positions += [("", mass) for mass in MASSES if own.where(mass=mass).lines]
            for at, mass in positions:
                here = own.where(dial=at, mass=mass)
                name = f"{method}{f', dial {at}' if at else ''}{f', tested at mass {mass}' if mass else ''}"
                _row(name, rate, here, zero)
    _row("zeroshot", "", zero, zero)


def _row(name: str, rate: str, here: Lines, zero: Lines) -> None:
    measured = [f"{here.mean(view):.1f}" if here.pairs(view) else "" for view in (*VIEWS, "other", "masked", "claimed")]
    print(f"| {name} | {rate} | {' | '.join(measured)} | {', '.join(differences(here, zero, VIEWS))} |")


def main() -> None:
    """Draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=OUT)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    lines = Lines.read(options.results)
    several = len(lines.where(method="fedotp").numbers("lr")) > 1
    for draw in (rounds, dial, mechanism, *([rates] if several else [])):
        print(draw(lines, options.folder))
    tables(lines)


if __name__ == "__main__":
    main()
