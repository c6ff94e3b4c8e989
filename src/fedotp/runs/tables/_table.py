"""Tables of runs: a row per variant with means over splits and seeds, and differences."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from fedotp._files import write_atomically
from fedotp._text import percent
from fedotp.methods import ZeroShot
from fedotp.runs.many import Outcome
from fedotp.runs.tables._columns import (
    WHEN,
    Cell,
    Column,
    by_model,
    cells_of,
    common_columns,
    csv_name,
    numbers_of,
    view_column,
    view_of,
)
from fedotp.runs.tables._controls import (
    CONTROLS,
    MARK,
    Check,
    check_runs,
    control_numbers,
    in_earnest,
    is_control,
    open_checks,
)
from fedotp.runs.tables._differences import CSV_TITLES, Differences, complete, images_of

Group = Sequence[Outcome]
"""Outcomes that differ only in split and seed."""
_CONTROL = "control: "
_NOTE = (
    "Accuracy: mean over clients after the last round; balanced: also over the classes of a client; with prior: after "
    "adding the logarithm of the client's class frequencies to its logits; best: of the round with the highest "
    "accuracy (chosen on the test images); last 5: mean over the last five rounds. All are means over runs, ± the "
    "sample standard deviation."
)


@dataclass(frozen=True)
class Row:
    """Runs that differ only in split and seed; `n` of `n_asked` are complete.

    `called` is its name in sentences, `checks` are against its controls.
    """

    labels: tuple[str, ...]
    n: int
    n_asked: int
    cells: dict[str, Cell]
    called: str
    checks: tuple[Check, ...] = ()

    @property
    def runs(self) -> str:
        """The number of runs, as text."""
        return str(self.n) if self.n == self.n_asked else f"{self.n} of {self.n_asked}"

    @property
    def flagged(self) -> list[Check]:
        """Checks with warnings."""
        return [check for check in self.checks if check.is_flagged]

    @property
    def not_above(self) -> list[str]:
        """Controls that it is not significantly above, flagged or not."""
        return [check.control for check in self.checks if not check.difference.is_above]


def method_rows(groups: Sequence[Group]) -> tuple[Row, ...]:
    """Return a row for each group of `groups` that is not a control; the others are their controls."""
    shuffled = {in_earnest(group[0].trial.config): group for group in groups if is_control(group[0])}
    return tuple(
        _row(group, check_runs(complete(group), complete(shuffled.get(in_earnest(group[0].trial.config), []))))
        for group in groups
        if not is_control(group[0])
    )


def control_rows(groups: Sequence[Group]) -> tuple[Row, ...]:
    """Return a row for each control of the methods in `groups`; those in the runs' summaries first."""
    methods = [group for group in groups if not is_control(group[0])]
    rows = []
    for images in dict.fromkeys(images_of(group[0]) for group in methods):
        alike = [group for group in methods if images_of(group[0]) == images]
        labels = alike[0][0].trial.labels.items()
        where = "".join(f", {key}={value}" for key, value in labels if key.startswith(("data.", "partition.")))
        has_zero_shot = any(group[0].trial.config.method == ZeroShot() for group in alike)
        controls = ["majority"] if has_zero_shot else ["majority", "zero_shot"]
        rows += [_computed(alike, control, CONTROLS[control] + where) for control in controls]
    parts = [_computed([group], "global", f"global part of {group[0].trial.called}") for group in methods]
    return (*rows, *(row for row in parts if row.n), *(_row(group) for group in groups if is_control(group[0])))


def _row(group: Group, checks: Sequence[Check] = ()) -> Row:
    numbers = [numbers_of(summary) for _, summary in complete(group)]
    trial = group[0].trial
    return Row(tuple(trial.labels.values()), len(numbers), len(group), cells_of(numbers), trial.called, tuple(checks))


def _computed(groups: Sequence[Group], control: str, title: str) -> Row:
    """Return a control from the summaries of `groups`, which have the same images."""
    found = control_numbers([outcome for group in groups for outcome in group], control)
    labels = (title, *("" for _ in range(len(groups[0][0].trial.labels) - 1)))
    return Row(labels, len(found), len(found), cells_of(found), title)


class ViewTable(NamedTuple):
    """Accuracies in views by a model: for each row three lines of labels, round and numbers."""

    by: str
    titles: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class Table:
    """A table of methods (`rows`) and `controls`.

    `labels` are the titles of the first columns, `columns` all others, with the common ones first; `differences` are
    those between rows, in mean accuracy; `views` are the names of views, for `view_tables`.
    """

    VIEWS_NOTE: ClassVar = (
        "Accuracies in views are means over clients: last: after the last round; best: after the best round of each "
        "view, chosen on the test images; last 5: mean over the last five rounds."
    )

    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    controls: tuple[Row, ...]
    differences: Differences
    views: tuple[str, ...] = ()

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], against: int = 0) -> "Table":
        """Make the table of complete outcomes, in the given order; row `against` is the baseline."""
        groups: dict[tuple[str, ...], list[Outcome]] = {}
        for outcome in outcomes:
            groups.setdefault(tuple(outcome.trial.labels.values()), []).append(outcome)
        rows = method_rows([*groups.values()])
        known = {column.key: column for column in common_columns()}
        views: dict[str, None] = {}
        for key in (key for row in rows for key in row.cells):
            if view := view_of(key):
                views[view] = None
            else:
                known.setdefault(key, Column(key, f"{key} %", percent, with_std=True))
        return cls(
            tuple(outcomes[0].trial.labels) if outcomes else (),
            tuple(known.values()),
            rows,
            control_rows([*groups.values()]),
            Differences.between([groups[row.labels] for row in rows], [row.called for row in rows], against),
            tuple(views),
        )

    def to_csv(self) -> str:
        """Return all numbers in full precision; shares are in [0, 1]."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        columns = [*self.columns, *(view_column(name, when) for name in self.views for when in WHEN)]
        names = [f"{csv_name(column.key)}_{what}" for column in columns for what in ("mean", "std")]
        writer.writerow([*self.labels, "runs", *names, *CSV_TITLES, "not_above"])
        for number, row in enumerate(self.rows):
            writer.writerow([*_csv(row, columns), *self.differences.csv_values(number), " ".join(row.not_above)])
        for row in self.controls:
            writer.writerow([*_csv(row, columns, _CONTROL), *("" for _ in CSV_TITLES), ""])
        return file.getvalue()

    def to_markdown(self) -> str:
        """Return the table with all notes as Markdown."""
        header = [*self.labels, "runs", *(column.title for column in self.columns)]
        parts = [markdown(header, self.lines(self.columns), [*self.labels]), f"{_NOTE}\n"]
        parts += [f"{sentence}\n" for sentence in (*self.warnings, *self.notes)]
        for views in self.view_tables():
            header = [*self.labels, "round", *views.titles]
            parts += [f"Views, {views.by}:\n", markdown(header, views.lines, [*self.labels, "round"])]
        parts += [f"{self.VIEWS_NOTE}\n"] if self.view_tables() else []
        if lines := self.differences.lines():
            parts += [markdown(self.differences.titles, lines, ["", "verdict"]), f"{self.differences.note}\n"]
        return "\n".join(parts)

    def lines(self, columns: Sequence[Column]) -> list[list[str]]:
        """Return all rows as printed texts, controls last."""
        rows = [(f"{row.labels[0]} {MARK}" if row.flagged else row.labels[0], row) for row in self.rows]
        rows += [(_CONTROL + row.labels[0], row) for row in self.controls]
        return [[first, *row.labels[1:], row.runs, *self.texts(row, columns)] for first, row in rows]

    def texts(self, row: Row, columns: Sequence[Column]) -> list[str]:
        """Return a row's numbers as printed texts."""
        return [row.cells[column.key].text(column) if column.key in row.cells else "-" for column in columns]

    def view_tables(self, *, with_std: bool = True) -> list[ViewTable]:
        """Return the accuracies in views by model, if there are views other than the clients' own images."""
        tables = []
        for by, names in by_model(self.views).items() if len(self.views) > 1 else ():
            lines = [
                [*row.labels, text, *self.texts(row, [view_column(name, when, with_std=with_std) for name in names])]
                for row in self.rows
                for when, text in WHEN.items()
            ]
            tables.append(ViewTable(by, [f"{title} %" for title in names.values()], lines))
        return tables

    @property
    def warnings(self) -> list[str]:
        """Sentences about flagged comparisons with controls."""
        return [check.sentence(row.called) for row in self.rows for check in row.flagged]

    @property
    def notes(self) -> list[str]:
        """Sentences about differences from controls that are neither flagged nor significant."""
        return open_checks({row.called: row.checks for row in self.rows})

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write table.csv and table.md."""
        paths = folder / "table.csv", folder / "table.md"
        write_atomically(paths[0], self.to_csv())
        write_atomically(paths[1], self.to_markdown())
        return paths


def _csv(row: Row, columns: Sequence[Column], prefix: str = "") -> list[object]:
    cells = [row.cells.get(column.key) for column in columns]
    values = [value for cell in cells for value in ((cell.mean, cell.std) if cell else (None, None))]
    return [prefix + row.labels[0], *row.labels[1:], row.n, *values]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[str]) -> str:
    """Return a Markdown table whose columns `words` contain text."""
    rule = ["---" if title in words else "---:" for title in header]
    escaped = [[" ".join(cell.split()).replace("|", "\\|") for cell in cells] for cells in (header, rule, *rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in escaped)
