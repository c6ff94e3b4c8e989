"""The rows of a table: methods, each with its controls beside it, and the controls themselves."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedotp.methods import ZeroShot
from fedotp.runs._columns import Cell, cell_of, cells_of, numbers_of
from fedotp.runs._controls import (
    CONTROLS,
    MARK,
    Check,
    check_runs,
    complete,
    control_accuracies,
    in_earnest,
    is_control,
)
from fedotp.runs._differences import images_of
from fedotp.runs._trial_run import Outcome

Group = Sequence[Outcome]
"""Outcomes that differ in nothing but split and seed."""


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but split and seed; `n` of `n_asked` are complete. No cells where none is.

    `called` is what it is in a sentence, `checks` are against its controls; a control has none.
    """

    labels: tuple[str, ...]
    n: int
    n_asked: int
    cells: dict[str, Cell]
    called: str
    checks: tuple[Check, ...] = ()

    @property
    def runs(self) -> str:
        """How many runs the numbers are of."""
        return str(self.n) if self.n == self.n_asked else f"{self.n} of {self.n_asked}"

    @property
    def flagged(self) -> list[Check]:
        """The controls it is worse than, or no better."""
        return [check for check in self.checks if check.is_flagged]

    @property
    def not_above(self) -> list[str]:
        """The controls it is not significantly above, flagged or not."""
        return [check.control for check in self.checks if not check.difference.is_above]

    @property
    def marked(self) -> tuple[str, ...]:
        """Its labels for people: with a sign where it is flagged."""
        first, *others = self.labels
        return (f"{first} {MARK}" if self.flagged else first, *others)


def method_rows(groups: Sequence[Group]) -> tuple[Row, ...]:
    """A row for each group of runs in earnest; the others of `groups` are their controls."""
    shuffled = {in_earnest(group[0].trial.config): group for group in groups if is_control(group[0])}
    return tuple(
        _row(group, check_runs(complete(group), complete(shuffled.get(in_earnest(group[0].trial.config), []))))
        for group in groups
        if not is_control(group[0])
    )


def control_rows(groups: Sequence[Group]) -> tuple[Row, ...]:
    """A row for each control of the methods in `groups`; those in the runs' summaries first."""
    methods = [group for group in groups if not is_control(group[0])]
    rows = []
    for images in dict.fromkeys(images_of(group[0]) for group in methods):
        alike = [group for group in methods if images_of(group[0]) == images]
        labels = alike[0][0].trial.labels.items()
        where = "".join(f", {key}={value}" for key, value in labels if key.startswith(("data.", "partition.")))
        rows.append(_computed(alike, "majority", CONTROLS["majority"] + where))
        if not any(group[0].trial.config.method == ZeroShot() for group in alike):
            rows.append(_computed(alike, "zero_shot", CONTROLS["zero_shot"] + where))
    parts = [_computed([group], "global_part", f"global part of {group[0].trial.called}") for group in methods]
    return (*rows, *(row for row in parts if row.n), *(_row(group) for group in groups if is_control(group[0])))


def _row(group: Group, checks: Sequence[Check] = ()) -> Row:
    numbers = [numbers_of(summary) for _, summary in complete(group)]
    trial = group[0].trial
    return Row(tuple(trial.labels.values()), len(numbers), len(group), cells_of(numbers), trial.called, tuple(checks))


def _computed(groups: Sequence[Group], control: str, title: str) -> Row:
    """A control that is in the summaries of `groups`, which are on the same images."""
    found = control_accuracies([outcome for group in groups for outcome in group], control)
    labels = (title, *("" for _ in range(len(groups[0][0].trial.labels) - 1)))
    return Row(labels, len(found), len(found), {"accuracy": cell_of(found)} if found else {}, title)
