"""How far FedOTP is ahead in each setting that was tried, after how many rounds, and how many splits show it.

    python -m recipes.demo.choice runs/choice recipes/demo/choice.csv

For every folder of runs, every round in which they were evaluated and every other method: what FedOTP is ahead in
points, its standard deviation over splits, and the smallest number of splits whose 95 % interval (Student's) would
leave out zero.
"""

import csv
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from scipy.stats import t

from fedotp.runs.directory import find_runs

_REFERENCE = "fedotp"
_MOST = 20  # splits
_COLUMNS = ("setting", "round", "method", "splits", "fedotp", "accuracy", "ahead", "std_over_splits", "splits_needed")


def main(folder: str, out: str) -> None:
    """Write the table of the runs in the folders of `folder` to `out`."""
    with open(out, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for setting in sorted(path for path in Path(folder).iterdir() if path.is_dir()):
            writer.writerows([setting.name, *row] for row in _rows(setting))


def _rows(setting: Path) -> Iterator[list[object]]:
    found: dict[str, dict[int, dict[int, float]]] = {}  # accuracy by method, round and split
    for run in find_runs(setting):
        for record in run.metrics("evaluation"):
            by_split = found.setdefault(run.config.method.name, {}).setdefault(record["round"], {})
            by_split[run.config.partition.seed] = 100 * record["accuracy"]
    ours = found.pop(_REFERENCE)
    for round_ in sorted(ours):
        for method, theirs in found.items():
            splits = sorted(ours[round_].keys() & theirs.get(round_, {}).keys())
            if len(splits) > 1:
                pairs = [(ours[round_][split], theirs[round_][split]) for split in splits]
                yield [round_, method, len(splits), *_numbers(pairs)]


def _numbers(pairs: Sequence[tuple[float, float]]) -> list[object]:
    ahead = [one - other for one, other in pairs]
    mean, std = statistics.fmean(ahead), statistics.stdev(ahead)
    enough = (n for n in range(2, _MOST + 1) if float(t.ppf(0.975, n - 1)) * std / n**0.5 < mean)
    means = (statistics.fmean(values) for values in zip(*pairs, strict=True))
    return [*(f"{value:.2f}" for value in (*means, mean, std)), next(enough, "")]


if __name__ == "__main__":
    main(*sys.argv[1:])
