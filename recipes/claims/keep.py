"""Keep what the page is made of: the study's CSV files in an order that does not depend on which run ended first.

    python -m recipes.claims.keep runs/claims docs/results/claims

Curves become a line each, from the accuracy before the first round to that after the last.
"""

import csv
import sys
from itertools import groupby
from pathlib import Path

from recipes.claims.looks import ALIKE, FOCUS
from recipes.claims.settings import Asked
from recipes.claims.study import CURVES, RUNS

_KEY = len(Asked.COLUMNS)


def _sorted(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and lines, each run once."""
    with path.open(newline="") as file:
        header, *lines = csv.reader(file)
    return header, sorted({tuple(line): line for line in lines}.values())


def _write(path: Path, lines: list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)


def main() -> None:
    """Write them."""
    source, target = (Path(argument) for argument in sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    for name in (RUNS, FOCUS, ALIKE):
        header, lines = _sorted(source / name)
        _write(target / name, [header, *lines])
    _, points = _sorted(source / CURVES)
    points.sort(key=lambda line: (line[:_KEY], int(line[_KEY])))
    curves = [[*key, " ".join(line[-1] for line in of)] for key, of in groupby(points, key=lambda line: line[:_KEY])]
    _write(target / CURVES, [[*Asked.COLUMNS, "accuracies"], *curves])


if __name__ == "__main__":
    main()
