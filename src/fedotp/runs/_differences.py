"""What a table says about the differences between its rows and one of them, in numbers and in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedotp.runs._paired import SHARE, Difference, Pair, holm, interval, paired, points
from fedotp.runs._trial_run import Outcome

_CSV = (
    "against",
    "difference",
    "difference_low",
    "difference_high",
    "difference_p",
    "difference_p_holm",
    "pairs",
    "splits",
)


@dataclass(frozen=True)
class Differences:
    """Mean accuracy of every row less that of row `reference`, paired over splits and seeds.

    Attributes:
        names: what the rows are called in a sentence.
        of: for each row; None for the reference itself, and where there is no pair on the same data.
        together: Holm's p of all rows that have one, which the words go by.
    """

    names: tuple[str, ...]
    reference: int
    of: tuple[Difference | None, ...]
    together: tuple[float | None, ...]

    @classmethod
    def between(cls, rows: Sequence[Sequence[Outcome]], names: Sequence[str], reference: int) -> "Differences":
        """The differences between groups of outcomes, those complete; row `reference` is the one they are against."""
        comparable = [images_of(row[0]) == images_of(rows[reference][0]) for row in rows]
        numbers = [accuracies(row) if same else {} for row, same in zip(rows, comparable, strict=True)]
        return cls.of_numbers(numbers, names, reference)

    @classmethod
    def of_numbers(cls, numbers: Sequence[Mapping[Pair, float]], names: Sequence[str], reference: int) -> "Differences":
        """The differences between rows of numbers, each by split and seed."""
        of = [paired(row, numbers[reference]) if i != reference else None for i, row in enumerate(numbers)]
        tested = {i: found.p for i, found in enumerate(of) if found and found.p is not None}
        together = dict(zip(tested, holm([*tested.values()]), strict=True))
        return cls(tuple(names), reference, tuple(of), tuple(together.get(i) for i in range(len(of))))

    @property
    def titles(self) -> tuple[str, ...]:
        """Of the columns of `lines`."""
        return "", f"minus {self.names[self.reference]}", "95 % interval", "pairs", "in words"

    def lines(self) -> list[tuple[str, ...]]:
        """For people: a line for each row that has a difference, in points of accuracy."""
        return [
            (
                self.names[number],
                points(difference.mean),
                interval(difference),
                str(difference.pairs),
                self.word(number),
            )
            for number, difference in enumerate(self.of)
            if difference
        ]

    def word(self, number: int) -> str:
        """What can be said of a row that has a difference."""
        difference, together = self.of[number], self.together[number]
        assert difference is not None
        if together is None:
            return "one pair is not enough"
        if not (difference.is_above or difference.is_below):
            return "difference not significant"
        if together > 1 - SHARE:
            return f"difference not significant after correcting for {self._n_tested} comparisons"
        return f"{'above' if difference.is_above else 'below'} {self.names[self.reference]}"

    @property
    def note(self) -> str:
        """What the intervals are about; a sentence or more."""
        found = [difference for difference in self.of if difference]
        most = max((difference.groups for difference in found), default=0)
        if max((difference.pairs for difference in found), default=0) < 2:
            return "One pair of runs is not enough: several splits (--splits) give differences an interval."
        over = (
            f"over {most} splits, each the mean over its seeds"
            if most > 1
            else "over seeds: it is about this split only; for others give --splits"
        )
        more = (
            f" Each interval is for one comparison; the words allow for all {self._n_tested} (Holm)."
            if self._n_tested > 1
            else ""
        )
        return (
            "Differences in points of mean accuracy, paired by split and seed; 95 % intervals by Student's t "
            f"{over}.{more}"
        )

    @property
    def _n_tested(self) -> int:
        return sum(p is not None for p in self.together)

    # Files -------------------------------------------------------------------------------------------------

    @property
    def csv_titles(self) -> tuple[str, ...]:
        """Of the columns of `csv_values`."""
        return _CSV

    def csv_values(self, number: int) -> tuple[str | float | None, ...]:
        """A row's difference in full precision, as a share."""
        found = self.of[number]
        if found is None:
            return (None,) * len(_CSV)
        against = self.names[self.reference]
        return against, found.mean, found.low, found.high, found.p, self.together[number], found.pairs, found.groups


def accuracies(outcomes: Sequence[Outcome]) -> dict[Pair, float]:
    """The mean accuracy of the runs that are complete and have one, by split and seed."""
    complete = [outcome for outcome in outcomes if outcome.directory.is_complete]
    finals = [(outcome.trial.config, outcome.directory.summary["final"]) for outcome in complete]
    return {(config.partition.seed, config.seed): final["accuracy"] for config, final in finals if final}


def images_of(outcome: Outcome) -> tuple[object, ...]:
    """What says who has which images, split and seed apart: runs for which it is equal are pairs."""
    config, directory = outcome.trial.config, outcome.directory
    deployed = directory.is_begun and directory.is_deployed  # sites have images of their own
    return deployed, config.data.dataset, config.data.root, config.data.classes, replace(config.partition, seed=0)
