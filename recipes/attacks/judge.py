"""What is told of the attacks, and when two things are told apart: written down before the study was run.

The unit is a split; a number is its mean over six splits with Student's interval of 95 %. Two things are told apart
where their difference, paired over splits, is not 0 at 5 %, allowing by Holm's procedure for all differences of the
same table. The tables, for each method:

    price      without an attack, each rule less the average
    harm       under the average, each attack from each share less the same honest clients without an attack
    help       under each attack from each share, each rule less the average: one family for each share
    success    the same of attack success, where an attack has one
    private    under the average, what each attack costs FedOTP less what it costs PromptFL: above 0, the private prompt
               protects
"""

import csv
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recipes.attacks.settings import Asked

from fedotp.runs.tables import SHARE, Pair, holm, paired

Series = Mapping[Pair, float]
"""A number by split; the second part of a pair, the seed, is the same for all."""


@dataclass(frozen=True)
class Told:
    """A difference, its interval, and whether it is told apart from 0."""

    mean: float
    low: float
    high: float
    apart: bool


def judge(pairs: Sequence[tuple[Series, Series]]) -> list[Told]:
    """The first of each pair less the second, all of one family."""
    found = [paired(ours, theirs) for ours, theirs in pairs]
    told = []
    for difference, p in zip(found, holm([_p(each) for each in found]), strict=True):
        assert difference is not None
        low, high = difference.low, difference.high
        assert low is not None
        assert high is not None
        told.append(Told(difference.mean, low, high, p <= 1 - SHARE))
    return told


def _p(difference: object) -> float:
    p = getattr(difference, "p", None)
    if p is None:
        raise ValueError("there are not two splits to compare")
    return float(p)


class Results:
    """The lines of runs.csv."""

    def __init__(self, path: Path) -> None:
        with path.open(newline="") as file:
            self._rows = {tuple(row[name] for name in Asked.COLUMNS): row for row in csv.DictReader(file)}

    def accuracy(self, method: str, attack: str, share: float, rule: str) -> Series:
        """Mean accuracy of the honest clients."""
        return self._series(method, attack, share, rule, "accuracy")

    def success(self, method: str, attack: str, share: float, rule: str) -> Series:
        """How often they see the target; with a share of 0, without an attack."""
        return self._series(method, attack, share, rule, "success")

    def unharmed(self, method: str, attack: str, share: float) -> Series:
        """Accuracy, without an attack and under the average, of the clients that are honest under this one."""
        found = {}
        for pair, row in self._lines(method, attack, share, "average").items():
            (honest,) = [line for other, line in self._lines(method, "none", 0.0, "average").items() if other == pair]
            attackers = {int(number) for number in row["malicious"].split()}
            found[pair] = _mean(
                float(accuracy)
                for number, accuracy in enumerate(honest["clients"].split())
                if number not in attackers and accuracy != "-"
            )
        return found

    def _series(self, method: str, attack: str, share: float, rule: str, number: str) -> Series:
        lines = self._lines(method, attack, share, rule)
        return {pair: float(row[number]) for pair, row in lines.items()}

    def _lines(self, method: str, attack: str, share: float, rule: str) -> dict[Pair, dict[str, str]]:
        key = (method, attack, f"{share:g}", rule)
        return {(int(split), 0): row for (*first, split), row in self._rows.items() if tuple(first) == key}


def less(ours: Series, theirs: Series) -> Series:
    """Ours less theirs, split by split."""
    return {pair: ours[pair] - theirs[pair] for pair in ours if pair in theirs}


def nothing(like: Series) -> Series:
    """0 for every split."""
    return dict.fromkeys(like, 0.0)


def interval(series: Series) -> tuple[float, float]:
    """The mean over splits, and half the length of its interval."""
    (told,) = judge([(series, nothing(series))])
    return told.mean, (told.high - told.low) / 2


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.fmean(found) if found else math.nan
