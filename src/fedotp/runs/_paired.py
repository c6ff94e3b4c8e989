"""Differences between two methods, paired over splits of the data and seeds, with intervals that do not flatter.

Two runs are a pair where split and seed are the same: what a split makes easy or hard for both is in neither's
favour. Seeds of one split share its clients and are no fresh evidence about another split. So with several splits
the units are the splits, each with the mean difference over its seeds, and the interval is Student's over them: it
speaks of splits like these. With one split the units are the seeds, and it speaks of that split only. With one unit
there is no interval.

Student's t distribution with a whole number of degrees of freedom has a closed form (Abramowitz and Stegun, Handbook of
Mathematical Functions, 26.7.3 and 26.7.4): with theta = atan(t / sqrt(n)),

    P(|T| <= t) = 2/pi (theta + sin cos (1 + 2/3 cos^2 + 2 4/(3 5) cos^4 + ...))   n odd, powers up to n - 3
                = sin (1 + 1/2 cos^2 + 1 3/(2 4) cos^4 + ...)                        n even, powers up to n - 2
"""

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

SHARE = 0.95  # of intervals, how many hold what they are about
_DIGITS = 12  # of a share: beyond them there is rounding, which could pass for a difference that never varies

Pair = tuple[Hashable, int]
"""The unit, such as the split (`partition.seed`) of a run, and the seed."""


@dataclass(frozen=True)
class Difference:
    """The mean difference over `pairs` pairs in `groups` groups, which are splits or clients.

    `low` and `high` are its interval of 95 %, `p` the probability of a mean as far from 0 without any difference (the
    paired t-test's); all three None where there is one unit only.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None
    pairs: int
    groups: int

    @property
    def is_above(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low is not None and self.low > 0

    @property
    def is_below(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.high is not None and self.high < 0


def paired(ours: Mapping[Pair, float], theirs: Mapping[Pair, float]) -> Difference | None:
    """Ours less theirs, over the pairs that both have; None where there are none."""
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
    """Low and high end of the mean's interval, and p."""
    degrees = len(units) - 1
    if not degrees:
        return None, None, None
    mean, error = statistics.fmean(units), statistics.stdev(units) / math.sqrt(len(units))
    if not error:
        return mean, mean, float(not mean)
    half = bound(SHARE, degrees) * error
    return mean - half, mean + half, 1 - within(abs(mean) / error, degrees)


def points(share: float) -> str:
    """A difference of shares, in points."""
    return f"{100 * share:+.2f}"


def interval(difference: Difference) -> str:
    """From where to where, of accuracies, which differ by 100 points at most."""
    if difference.low is None or difference.high is None:
        return "-"
    return f"{points(max(difference.low, -1.0))} to {points(min(difference.high, 1.0))}"


def holm(p: Sequence[float]) -> list[float]:
    """Holm's p of several comparisons: those below 0.05 are all right at once with a probability of 95 %."""
    adjusted = [1.0] * len(p)
    most = 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        most = max(most, min(1.0, (len(p) - rank) * p[place]))
        adjusted[place] = most
    return adjusted


def within(t: float, degrees: int) -> float:
    """The probability of a value between -t and t, t >= 0."""
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
    """The t for which a value is between -t and t with the probability `share` < 1: 0.95 for an interval of 95 %."""
    low, high = 0.0, 1.0
    while within(high, degrees) < share:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if within(middle, degrees) >= share else (middle, high)
    return high
