"""How far FedOTP is ahead after how many rounds, and how many splits show it.

    python -m recipes.demo.choice runs/choice recipes/demo/choice.csv

For every round in which the runs were evaluated and every other method: what FedOTP is ahead in points, its standard
deviation over splits, and the smallest number of splits whose 95 % interval (Student's) would leave out zero.
"""

import csv
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from scipy.stats import t

from fedotp.runs import RunDirectory, find_runs

_REFERENCE = "fedotp"
_MOST = 20  # splits


_COLUMNS = ("round", "method", "splits", "fedotp", "accuracy", "ahead", "std_over_splits", "splits_needed")


def main(folder: str, out: str) -> None:
    """Write the table of the runs in `folder` to `out`."""
    found: dict[str, dict[int, dict[int, float]]] = {}  # accuracy by method, round and split
    for run in find_runs(Path(folder)):
        for record in run.metrics("evaluation"):
            by_split = found.setdefault(_method(run), {}).setdefault(record["round"], {})
            by_split[run.config.partition.seed] = 100 * record["accuracy"]
    ours = found.pop(_REFERENCE)
    with open(out, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for round_ in sorted(ours):
            for method, theirs in found.items():
                splits = sorted(ours[round_].keys() & theirs.get(round_, {}).keys())
                if len(splits) > 1:
                    pairs = [(ours[round_][split], theirs[round_][split]) for split in splits]
                    writer.writerow([round_, method, len(splits), *_numbers(pairs)])


def _method(run: RunDirectory) -> str:
    return run.config.method.name


def _numbers(pairs: Sequence[tuple[float, float]]) -> list[object]:
    ahead = [one - other for one, other in pairs]
    mean, std = statistics.fmean(ahead), statistics.stdev(ahead)
    enough = (n for n in range(2, _MOST + 1) if float(t.ppf(0.975, n - 1)) * std / n**0.5 < mean)
    means = (statistics.fmean(values) for values in zip(*pairs, strict=True))
    return [*(f"{value:.2f}" for value in (*means, mean, std)), next(enough, "")]


if __name__ == "__main__":
    main(*sys.argv[1:])
