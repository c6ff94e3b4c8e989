"""Runs that differ in a few things as a table: one row for each, means over its splits and seeds, and differences."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedotp._files import write_atomically
from fedotp.federation import percent
from fedotp.runs._columns import Column, common_columns, csv_name, view_column, view_of
from fedotp.runs._controls import open_checks
from fedotp.runs._differences import Differences
from fedotp.runs._rows import Row, control_rows, method_rows
from fedotp.runs._trial_run import Outcome
from fedotp.runs._views import WHEN, by_model

VIEWS_NOTE = (
    "Accuracies in views are means over clients: after the last round; after the best one, each view its own, chosen "
    "on the test images; and the mean over the last five rounds."
)
_CONTROL = "control: "
_NOTE = (
    "Accuracy is the mean over clients after the last round, best that of the round where it was highest (chosen on "
    "the test images), last 5 the mean over the last five rounds; all are means over runs, ± the sample standard "
    "deviation."
)


class ViewTable(NamedTuple):
    """Accuracies in views `by` somebody: three lines for each row, its labels, which round, a number for each title."""

    by: str
    titles: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class Table:
    """`labels` are the titles of the first columns; `columns` all others, of which the common ones come first.

    `rows` are methods, `controls` what they must be above; `differences` are those between rows, in mean accuracy.
    `views` are the names of views, the accuracies in which `view_tables` has.
    """

    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    controls: tuple[Row, ...]
    differences: Differences
    views: tuple[str, ...] = ()

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], against: int = 0) -> "Table":
        """The table of what is complete, in the order in which it was asked for; row `against` is the reference."""
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
        """All numbers in full precision; shares are in [0, 1]."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        columns = [*self.columns, *(view_column(name, when) for name in self.views for when in WHEN)]
        names = [f"{csv_name(column.key)}_{what}" for column in columns for what in ("mean", "std")]
        differences = self.differences.csv_titles
        writer.writerow([*self.labels, "runs", *names, *differences, "not_above"])
        for number, row in enumerate(self.rows):
            writer.writerow([*_csv(row, columns), *self.differences.csv_values(number), " ".join(row.not_above)])
        for row in self.controls:
            writer.writerow([*_csv(row, columns, _CONTROL), *("" for _ in differences), ""])
        return file.getvalue()

    def to_markdown(self) -> str:
        """For a paper or an issue."""
        header = [*self.labels, "runs", *(column.title for column in self.columns)]
        parts = [markdown(header, self.lines(self.columns), [*self.labels]), f"{_NOTE}\n"]
        parts += [f"{sentence}\n" for sentence in (*self.warnings, *self.notes)]
        for views in self.view_tables():
            header = [*self.labels, "round", *views.titles]
            parts += [f"In views, {views.by}:\n", markdown(header, views.lines, [*self.labels, "round"])]
        parts += [f"{VIEWS_NOTE}\n"] if self.view_tables() else []
        if lines := self.differences.lines():
            parts += [markdown(self.differences.titles, lines, ["", "in words"]), f"{self.differences.note}\n"]
        return "\n".join(parts)

    def lines(self, columns: Sequence[Column]) -> list[list[str]]:
        """All rows for people, controls last."""
        rows = [(row.marked, row) for row in self.rows]
        rows += [((_CONTROL + row.labels[0], *row.labels[1:]), row) for row in self.controls]
        return [[*labels, row.runs, *self.texts(row, columns)] for labels, row in rows]

    def texts(self, row: Row, columns: Sequence[Column]) -> list[str]:
        """A row's numbers for people."""
        return [row.cells[column.key].text(column) if column.key in row.cells else "-" for column in columns]

    def view_tables(self, *, with_std: bool = True) -> list[ViewTable]:
        """The accuracies in views, where there are any but that on the clients' own images, by who predicts."""
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
        """A sentence for each control that a method should be above and is not."""
        return [check.sentence(row.called) for row in self.rows for check in row.flagged]

    @property
    def notes(self) -> list[str]:
        """What is neither flagged nor significantly above a control."""
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
    """A table whose columns `words` are no numbers."""
    rule = ["---" if title in words else "---:" for title in header]
    return "".join(f"| {' | '.join(_escape(cells))} |\n" for cells in (header, rule, *rows))


def _escape(cells: Iterable[str]) -> list[str]:
    return [" ".join(cell.split()).replace("|", "\\|") for cell in cells]
