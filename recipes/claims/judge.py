"""When a claim holds, does not hold, or is undecided: written down before the study was run.

A claim is a set of comparisons, each a difference that the claim says is above 0, paired over splits and seeds
(`fedotp.runs.tables.paired`). Allowing for all comparisons of the claim by Holm's procedure, at 5 %, a comparison is

    ahead    above 0,
    behind   below 0,
    small    not above 0, and below the claim's margin (half a point of accuracy): if there is an advantage, it is not
             worth the name,
    open     none of these: the runs do not tell.

The claim holds if all are ahead. It does not hold if any is behind or small. Otherwise it is undecided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fedotp.runs.tables import SHARE, Difference, Pair, holm, paired

MARGIN = 0.005

Series = Mapping[Pair, float]
"""A number of runs by split and seed."""


class Word(StrEnum):
    """What became of a comparison."""

    AHEAD = "ahead"
    BEHIND = "behind"
    SMALL = "small"
    OPEN = "open"


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    NOT = "does not hold"
    OPEN = "undecided"


@dataclass(frozen=True)
class Comparison:
    """`ours` less `theirs` in the cell (row, column) of a claim's table; the claim says that it is above 0."""

    row: str
    column: str
    ours: Series
    theirs: Series


@dataclass(frozen=True)
class Judged:
    """A comparison and what became of it; `recorded` is one that was judged elsewhere, in a larger family."""

    row: str
    column: str
    mean: float
    low: float
    high: float
    word: Word
    recorded: bool = False


def judge(comparisons: Sequence[Comparison], margin: float = MARGIN) -> list[Judged]:
    """What became of each of a claim's comparisons."""
    found = [_difference(each, 0.0) for each in comparisons]
    beyond = [_difference(each, margin) for each in comparisons]
    from_zero, from_margin = (holm([each[1] for each in some]) for some in (found, beyond))
    words = []
    for (difference, _), zero, small in zip(found, from_zero, from_margin, strict=True):
        if zero <= 1 - SHARE:
            words.append(Word.AHEAD if difference.mean > 0 else Word.BEHIND)
        else:
            words.append(Word.SMALL if small <= 1 - SHARE and difference.mean < margin else Word.OPEN)
    return [
        Judged(each.row, each.column, difference.mean, *_ends(difference), word)
        for each, (difference, _), word in zip(comparisons, found, words, strict=True)
    ]


def verdict(judged: Sequence[Judged]) -> Verdict:
    """What the comparisons of a claim say of it."""
    words = {each.word for each in judged}
    if words & {Word.BEHIND, Word.SMALL}:
        return Verdict.NOT
    return Verdict.HOLDS if words == {Word.AHEAD} else Verdict.OPEN


def _difference(each: Comparison, less: float) -> tuple[Difference, float]:
    """The difference less something, and its p."""
    found = paired(each.ours, {pair: value + less for pair, value in each.theirs.items()})
    if found is None or found.p is None:
        raise ValueError(f"{each.row}, {each.column}: there are not two pairs to compare")
    return found, found.p


def _ends(difference: Difference) -> tuple[float, float]:
    assert difference.low is not None
    assert difference.high is not None
    return difference.low, difference.high
