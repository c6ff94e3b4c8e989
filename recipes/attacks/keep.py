"""Keep what the page is made of: the lines of the study in an order that does not depend on which run ended first.

python -m recipes.attacks.keep runs/attacks docs/results/attacks.csv
"""

import csv
import sys
from pathlib import Path

from recipes.claims.study import RUNS


def main() -> None:
    """Write the lines, sorted."""
    source, target = (Path(argument) for argument in sys.argv[1:])
    with (source / RUNS).open(newline="") as file:
        header, *lines = csv.reader(file)
    with target.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *sorted(lines)])


if __name__ == "__main__":
    main()
