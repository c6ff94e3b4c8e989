"""Keep what the page is made of: the study's CSV files in an order that does not depend on which run ended first.

python -m recipes.claims.keep runs/claims docs/results/claims
"""

import csv
import sys
from pathlib import Path

from recipes.claims.looks import FOCUS
from recipes.claims.settings import CHOOSING, SETTINGS, Asked, asked
from recipes.claims.study import RUNS


def main() -> None:
    """Write the lines of runs that the study has, sorted."""
    source, target = (Path(argument) for argument in sys.argv[1:])
    known = {run.key for name in (*CHOOSING, *SETTINGS) for run in asked(name, {}, device="cpu", toy=False)}
    target.mkdir(parents=True, exist_ok=True)
    for name in (RUNS, FOCUS):
        with (source / name).open(newline="") as file:
            header, *lines = csv.reader(file)
        kept = sorted(line for line in lines if tuple(line[: len(Asked.COLUMNS)]) in known)
        with (target / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *kept])


if __name__ == "__main__":
    main()
