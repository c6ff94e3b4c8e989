"""Differences between two methods, paired over data splits and seeds, with confidence intervals.

Two runs with the same split and seed are a pair. Seeds of one split share its clients, so they are no independent
evidence about other splits. With several splits, the units are the splits, each with the mean difference over its
seeds, and Student's t interval refers to splits like these. With one split, the units are the seeds, and the interval
refers to that split only. With one unit, there is no interval.

Student's t distribution with an integer number of degrees of freedom has a closed form (Abramowitz and Stegun, Handbook
of Mathematical Functions, 26.7.3 and 26.7.4): with theta = atan(t / sqrt(n)),

    P(|T| <= t) = 2/pi (theta + sin cos (1 + 2/3 cos^2 + 2 4/(3 5) cos^4 + ...))   n odd, powers up to n - 3
                = sin (1 + 1/2 cos^2 + 1 3/(2 4) cos^4 + ...)                        n even, powers up to n - 2
"""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it imports torch, which the checks of one run do not need
    from fedotp.runs.many import Outcome

SHARE = 0.95  # confidence of intervals
_DIGITS = 12  # of a share: removes rounding errors, which would look like a difference without variance

Pair = tuple[Hashable, int]
"""The unit, such as the split (`partition.seed`) of a run, and the seed."""
Summary = Mapping[str, Any]
Numbered = tuple[Pair, Summary]
"""Split and seed of a run, and its summary."""


@dataclass(frozen=True)
class Difference:
    """The mean difference over `pairs` pairs in `groups` groups, which are splits or clients.

    `low` and `high` are its 95 % interval, `p` that of the paired t-test; all three are None for a single unit.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    pairs: int
    groups: int

    @property
    def is_above(self) -> bool:
        """True if the whole interval is above 0."""
        return self.low is not None and self.low > 0

    @property
    def is_below(self) -> bool:
        """True if the whole interval is below 0."""
        return self.high is not None and self.high < 0

    @property
    def points(self) -> str:
        """The printed mean, in points of accuracy."""
        return f"{100 * self.mean:+.2f}"

    @property
    def interval(self) -> str:
        """The printed interval, limited to 100 points of accuracy."""
        if self.low is None or self.high is None:
            return "-"
        return f"{100 * max(self.low, -1.0):+.2f} to {100 * min(self.high, 1.0):+.2f}"


def paired(ours: Mapping[Pair, float], theirs: Mapping[Pair, float]) -> Difference | None:
    """Return ours - theirs over common pairs; None if there are none."""
    by_group: dict[Hashable, list[float]] = {}
    for pair in ours:
        if pair in theirs:
            by_group.setdefault(pair[0], []).append(round(ours[pair] - theirs[pair], _DIGITS))
    if not by_group:
        return None
    n_pairs = sum(map(len, by_group.values()))
    units = [statistics.fmean(of_seeds) for of_seeds in by_group.values()]
    if len(units) == 1:
        (units,) = by_group.values()
    low, high, p = _interval(units)
    return Difference(statistics.fmean(units), low, high, p, n_pairs, len(by_group))


def _interval(units: Sequence[float]) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return both ends of the mean's interval, and p."""
    degrees = len(units) - 1
    if not degrees:
        return None, None, None
    mean, error = statistics.fmean(units), statistics.stdev(units) / math.sqrt(len(units))
    if not error:
        return mean, mean, float(not mean)
    half = bound(SHARE, degrees) * error
    return mean - half, mean + half, 1 - within(abs(mean) / error, degrees)


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons by Holm's method."""
    adjusted = [1.0] * len(p)
    most = 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        most = max(most, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = most
    return adjusted


def within(t: float, degrees: int) -> float:
    """Return the probability of a value between -t and t, t >= 0."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term, total = 1.0, 0.0
    for k in range(1, (degrees - odd) // 2 + 1):
        total += term
        term *= (2 * k - 1 + odd) / (2 * k + odd) * math.cos(angle) ** 2
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * math.cos(angle) * total)
    return math.sin(angle) * total


def bound(share: float, degrees: int) -> float:
    """Return the t for which a value is between -t and t with probability `share` < 1."""
    low, high = 0.0, 1.0
    while within(high, degrees) < share:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if within(middle, degrees) >= share else (middle, high)
    return high


CSV_TITLES = (
    *("against", "difference", "difference_low", "difference_high", "difference_p", "difference_p_holm"),
    *("pairs", "splits"),
)
"""Titles of the columns of `Differences.csv_values`."""


@dataclass(frozen=True)
class Differences:
    """Mean accuracy of every row minus that of row `reference`, paired over splits and seeds.

    Attributes:
        names: names of the rows in sentences.
        of: the difference of each row; None for the reference, and without a pair on the same data.
        together: p-values of all rows, adjusted by Holm's method, on which the verdicts are based.
    """

    names: tuple[str, ...]
    reference: int
    of: tuple[Difference | None, ...]
    together: tuple[float | None, ...]

    @classmethod
    def between(cls, rows: "Sequence[Sequence[Outcome]]", names: Sequence[str], reference: int) -> "Differences":
        """Compute the differences between groups of complete outcomes; row `reference` is the baseline."""
        comparable = [images_of(row[0]) == images_of(rows[reference][0]) for row in rows]
        numbers = [
            {number: run["final"]["accuracy"] for number, run in complete(row) if same and run["final"]}
            for row, same in zip(rows, comparable, strict=True)
        ]
        return cls.of_numbers(numbers, names, reference)

    @classmethod
    def of_numbers(cls, numbers: Sequence[Mapping[Pair, float]], names: Sequence[str], reference: int) -> "Differences":
        """Compute the differences between rows of numbers, each by split and seed."""
        of = [paired(row, numbers[reference]) if i != reference else None for i, row in enumerate(numbers)]
        tested = {i: found.p for i, found in enumerate(of) if found and found.p is not None}
        together = dict(zip(tested, holm([*tested.values()]), strict=True))
        return cls(tuple(names), reference, tuple(of), tuple(together.get(i) for i in range(len(of))))

    @property
    def titles(self) -> tuple[str, ...]:
        """Titles of the columns of `lines`."""
        return "", f"minus {self.names[self.reference]}", "95 % interval", "pairs", "verdict"

    def lines(self) -> list[tuple[str, ...]]:
        """Return a printed line for each row with a difference, in points of accuracy."""
        return [
            (self.names[number], difference.points, difference.interval, str(difference.pairs), self.word(number))
            for number, difference in enumerate(self.of)
            if difference
        ]

    def word(self, number: int) -> str:
        """Return the verdict on a row with a difference."""
        difference, together = self.of[number], self.together[number]
        assert difference is not None
        if together is None:
            return "inconclusive: only one pair"
        if not (difference.is_above or difference.is_below):
            return "difference not significant"
        if together > 1 - SHARE:
            return f"difference not significant after correcting for {self._n_tested} comparisons"
        return f"{'above' if difference.is_above else 'below'} {self.names[self.reference]}"

    @property
    def note(self) -> str:
        """A note that explains the intervals."""
        found = [difference for difference in self.of if difference]
        most = max((difference.groups for difference in found), default=0)
        if max((difference.pairs for difference in found), default=0) < 2:
            return "One pair of runs is not enough for an interval: use several splits (--splits)."
        splits, seeds = f"{most} splits, each the mean over its seeds", "seeds, for this split only; add --splits"
        n = self._n_tested
        more = f" Intervals are not corrected for multiple comparisons; verdicts are, for {n} (Holm)." if n > 1 else ""
        return (
            "Differences in points of mean accuracy, paired by split and seed; 95 % intervals by Student's t over "
            f"{splits if most > 1 else seeds}.{more}"
        )

    @property
    def _n_tested(self) -> int:
        return sum(p is not None for p in self.together)

    def csv_values(self, number: int) -> tuple[str | float | None, ...]:
        """Return a row's difference in full precision, as a share."""
        found = self.of[number]
        if found is None:
            return (None,) * len(CSV_TITLES)
        against = self.names[self.reference]
        return against, found.mean, found.low, found.high, found.p, self.together[number], found.pairs, found.groups


def complete(outcomes: "Sequence[Outcome]") -> list[Numbered]:
    """Return split, seed and summary of complete outcomes."""
    ended = [(outcome.trial.config, outcome.directory) for outcome in outcomes if outcome.directory.is_complete]
    return [((config.partition.seed, config.seed), run.summary) for config, run in ended]


def images_of(outcome: "Outcome") -> tuple[object, ...]:
    """Return the settings of data and partition, without split and seed; runs with equal ones are pairs."""
    config, directory = outcome.trial.config, outcome.directory
    deployed = directory.is_begun and directory.is_deployed  # sites have their own images
    data, authors = config.data, config.authors
    return deployed, data.dataset, data.root, data.classes, replace(config.partition, seed=0), authors.partition
