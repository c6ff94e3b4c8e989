"""The tables of docs/limits.md, from what study.py has measured.

python -m recipes.limits.tables            # prints them
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from recipes.limits.scores import BY_SCORES, CHOSEN
from recipes.limits.study import COVERAGES, DATA, METHODS, OUT, Row

from fedotp.runs.tables import markdown

WORDS = ("data", "own images", "score")  # columns that are no numbers


def read(path: Path) -> list[Row]:
    """Rows, numbers as numbers."""
    with open(path, newline="") as file:
        return [{name: _number(value) for name, value in row.items()} for row in csv.DictReader(file)]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _chosen(rows: Iterable[Row], **asked: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in asked.items())]


def _values(rows: Sequence[Row], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows], np.float64)


def by_split(rows: Sequence[Row], name: str) -> np.ndarray:
    """Of each split the mean over clients."""
    splits = sorted({row["split"] for row in rows})
    return np.array([_values(_chosen(rows, split=split), name).mean() for split in splits])


def interval(values: np.ndarray, digits: int = 3, least: float = 0, most: float = 1) -> str:
    """The mean, and its 95 % interval (Student's) as far as it is from `least` to `most`."""
    from scipy import stats  # slow to import

    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    low, high = max(low, least), min(high, most)
    return f"{values.mean():.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def coverage_table(rows: Sequence[Row]) -> str:
    """FedOTP's sets by lac: over 200 divisions and all splits, of all clients and of the client farthest off."""
    lines = []
    for data in DATA:
        for asked in COVERAGES:
            found = _chosen(rows, data=data, asked=asked, score="lac", method="fedotp")
            own = [row for row in found if row["calibrated_by"] == "own"]
            common = [row for row in found if row["client"] != "all" and row["calibrated_by"] == "all"]
            whole = _chosen(found, client="all")
            lines.append(
                (
                    data,
                    f"{100 * asked:.0f} %",
                    f"{100 * _values(own, 'coverage').mean():.1f}",
                    f"{100 * np.abs(_values(own, 'coverage') - asked).max():.1f}",
                    f"{100 * _values(own, 'never_empty').mean():.1f}",
                    f"{_values(own, 'size').mean():.2f}",
                    f"{100 * _values(whole, 'coverage').mean():.1f}",
                    f"{100 * np.abs(_values(common, 'coverage') - asked).max():.1f}",
                )
            )
    heads = (
        "data",
        "requested",
        "covered, %",
        "farthest client, points",
        "never empty, %",
        "classes in a set",
        "calibrated by all: covered, %",
        "farthest client, points",
    )
    return markdown(heads, lines, WORDS)


def farthest(rows: Sequence[Row]) -> float:
    """The largest distance, over everything measured, of a client's own coverage from what was asked for."""
    own = [row for row in rows if row["calibrated_by"] == "own"]
    return float(np.abs(_values(own, "coverage") - _values(own, "asked")).max())


def score_table(rows: Sequence[Row]) -> str:
    """Of FedOTP's first split, sets that are never empty by each score: classes in a set."""
    kinds = ("lac", "aps", "aps, randomised")
    lines = []
    for data in DATA:
        for asked in COVERAGES:
            found = [
                _chosen(rows, data=data, asked=asked, score=kind, method="fedotp", split=0, calibrated_by="own")
                for kind in kinds
            ]
            cells = (
                f"{_values(each, 'size').mean():.2f} ({100 * _values(each, 'empty').mean():.1f})" for each in found
            )
            lines.append((data, f"{100 * asked:.0f} %", *cells))
    return markdown(("data", "asked", *kinds), lines, WORDS)


def outlier_table(rows: Sequence[Row], name: str) -> str:
    """A number of outliers.csv for each score: means over clients, of FedOTP with half of the interval over splits.

    ▲ and ▽: FedOTP's is above or below that of the chosen score, by the interval of the paired difference.
    """
    lines = []
    for score in (CHOSEN, "mahalanobis", *BY_SCORES):
        cells: list[str] = []
        for data in DATA:
            found = {
                method: by_split(_chosen(rows, data=data, score=score, method=method), name)
                for method in (METHODS[:1] if score in (CHOSEN, "mahalanobis") else METHODS)
            }
            ours = by_split(_chosen(rows, data=data, score=CHOSEN, method="fedotp"), name)
            cells.append(f"{found['fedotp'].mean():.3f} ±{half(found['fedotp']):.3f}{_mark(found['fedotp'] - ours)}")
            cells += [f"{found[method].mean():.3f}" if method in found else "same" for method in METHODS[1:]]
        lines.append((score, *cells))
    return markdown(("score", *(f"{data}: {method}" for data in DATA for method in METHODS)), lines, WORDS)


def half(values: np.ndarray) -> float:
    """Half of Student's 95 % interval of the mean."""
    from scipy import stats

    return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def _mark(differences: np.ndarray) -> str:
    if abs(differences.mean()) <= half(differences):
        return ""
    return " ▲" if differences.mean() > 0 else " ▽"


def flag_table(rows: Sequence[Row]) -> str:
    """What is flagged at 0.05."""
    lines = []
    for data in DATA:
        found = _chosen(rows, data=data, score=CHOSEN, method="fedotp")
        shares = (interval(100 * by_split(found, name), 1, most=100) for name in ("flagged_own", "flagged_strangers"))
        lines.append((data, f"{_values(found, 'known').mean():.0f}", *shares))
    return markdown(("own images", "used to calibrate", "own flagged, %", "outliers flagged, %"), lines, WORDS)


def main(folder: Path) -> None:
    """Print all tables."""
    coverage, outliers = (read(folder / f"{name}.csv") for name in ("coverage", "outliers"))
    print(coverage_table(coverage), f"Farthest of all: {100 * farthest(coverage):.2f} points", sep="\n\n", end="\n\n")
    print(score_table(coverage), outlier_table(outliers, "auroc"), sep="\n\n", end="\n\n")
    print(outlier_table(outliers, "fpr95"), flag_table(outliers), sep="\n\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
