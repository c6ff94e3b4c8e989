"""The numbers of the study's runs, as series over splits and seeds."""

import csv
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from recipes.claims.judge import Judged, Series, Word
from recipes.claims.settings import Asked

from fedotp.runs.tables import Pair

ZERO_SHOT = "zeroshot"
_FIELD_RATES = {"promptfl-fedamp": ",optimizer.lr=0.03", "pfedprompt": ",optimizer.lr=0.003"}  # in its names of methods
_FIELD_WORDS = {"ahead": Word.AHEAD, "behind": Word.BEHIND, "not told apart": Word.OPEN}

Row = dict[str, str]
Index = dict[tuple[str, str, str], dict[Pair, Row]]


class Results:
    """What is in a folder of the study's CSV files, and in that of recipes/field."""

    def __init__(self, folder: Path, field: Path) -> None:
        self.runs = _read(folder / "runs.csv")
        with (folder / "focus.csv").open(newline="") as file:
            self.focus = list(csv.DictReader(file))
        self.field = field

    def series(self, setting: str, method: str, value: float | None = None, number: str = "accuracy") -> Series:
        """A number of the runs of a method; zero-shot's is in those of FedOTP."""
        if method == ZERO_SHOT:
            method, number = "fedotp", "zero_shot"
        return _numbers(self.runs, setting, method, value, number)

    def mean(self, setting: str, method: str, values: Sequence[float], number: str = "accuracy") -> Series:
        """The mean over the values of what is varied."""
        return mean_of(self.series(setting, method, value, number) for value in values)

    def slope(self, setting: str, method: str, values: Sequence[float], base: float) -> Series:
        """How much accuracy rises where what is varied grows `base` times: the slope of a line through all values."""
        at = [math.log(value, base) for value in values]
        centre = statistics.fmean(at)
        weights = [(x - centre) / sum((other - centre) ** 2 for other in at) for x in at]
        parts = [self.series(setting, method, value) for value in values]
        return {pair: math.fsum(w * part[pair] for w, part in zip(weights, parts, strict=True)) for pair in parts[0]}

    def looks(self, mass: float, prompt: str) -> Series:
        """How much more of the plan at a mass lies on what is drawn than if all patches were alike."""
        return {
            (int(row["split"]), int(row["seed"])): float(row[prompt])
            for row in self.focus
            if float(row["mass"]) == mass
        }

    def recorded(self, setting: str, methods: Sequence[str], column: str) -> list[Judged]:
        """FedOTP less each of `methods` in a setting of the earlier study of all methods, as judged there."""
        with (self.field / f"{setting}.csv").open(newline="") as file:
            rows = {row["method"]: row for row in csv.DictReader(file) if row["number"] == "accuracy"}
        found = {method: rows[method.replace(":", ",") + _FIELD_RATES.get(method, "")] for method in methods}
        return [
            Judged(
                method,
                column,
                float(row["fedotp_minus_it"]),
                float(row["low"]),
                float(row["high"]),
                _FIELD_WORDS[row["fedotp_is"]],
                recorded=True,
            )
            for method, row in found.items()
        ]


def mean_of(parts: Iterable[Series]) -> Series:
    """The mean of several numbers of the same splits and seeds."""
    several = list(parts)
    return {pair: statistics.fmean(part[pair] for part in several) for pair in several[0]}


def nothing(like: Series) -> Series:
    """0 for every pair."""
    return dict.fromkeys(like, 0.0)


def _numbers(index: Index, setting: str, method: str, value: float | None, number: str) -> Series:
    found = index[setting, method, "" if value is None else f"{value:g}"]
    return {pair: float(row[number]) for pair, row in found.items()}


def _read(path: Path) -> Index:
    index: Index = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            setting, value, method, split, seed = (row[name] for name in Asked.COLUMNS)
            index.setdefault((setting, method, value), {})[int(split), int(seed)] = row
    return index
