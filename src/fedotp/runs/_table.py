"""Runs that differ in a few things as a table: one row for each, means over its splits and seeds, and differences."""

import csv
import io
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedotp._files import write_atomically
from fedotp.federation import METRICS, percent
from fedotp.runs._differences import Differences
from fedotp.runs._trial_run import Outcome
from fedotp.runs._views import WHEN, view_numbers

VIEWS_NOTE = "Accuracies in views are means over clients; each has a best round of its own, chosen on the test images."
_VIEW = "view:"  # begins the keys of views
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Column:
    """A number of runs: its name in files, its title for people, how to write a value, and whether to write its spread.

    `better` is None where neither more nor less of it is the better result.
    """

    key: str
    title: str
    write: Callable[[float], str]
    with_std: bool = False
    better: Literal["higher", "lower"] | None = "higher"


@dataclass(frozen=True)
class Cell:
    """A number over runs; `std` is the sample standard deviation, None where there is one run only."""

    mean: float
    std: float | None

    def text(self, column: Column) -> str:
        """For people."""
        spread = f" ± {column.write(self.std)}" if column.with_std and self.std is not None else ""
        return column.write(self.mean) + spread


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but split and seed; `n` of `n_asked` are complete. No cells where none is."""

    labels: tuple[str, ...]
    n: int
    n_asked: int
    cells: dict[str, Cell]

    @property
    def runs(self) -> str:
        """How many runs the numbers are of."""
        return str(self.n) if self.n == self.n_asked else f"{self.n} of {self.n_asked}"


def n_bytes(value: float) -> str:
    """A number of bytes."""
    power = 0
    while value >= 1024 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.0f} B" if power == 0 else f"{value:.1f} {_UNITS[power]}"


def seconds(value: float) -> str:
    """Seconds."""
    return f"{value:.1f}"


def common_columns() -> tuple[Column, ...]:
    """What every table has; domains and clients that joined come after it."""
    accuracy, *others = (
        Column(metric.key, metric.heading, metric.write, with_std=metric.key == "accuracy", better=metric.better)
        for metric in METRICS.values()
        if metric.is_share
    )
    return (
        accuracy,
        Column("worst_decile", "worst decile %", percent),
        *others,
        Column("bytes", "sent", n_bytes, better=None),
        Column("seconds", "seconds", seconds, better=None),
    )


@dataclass(frozen=True)
class Table:
    """`labels` are the titles of the first columns; `columns` all others, of which the common ones come first.

    `differences` are those between rows, in mean accuracy over clients. `views` are the names of views, the accuracies
    in which `view_lines` has.
    """

    labels: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    differences: Differences
    views: tuple[str, ...] = ()

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], against: int = 0) -> "Table":
        """The table of what is complete, in the order in which it was asked for; row `against` is the reference."""
        groups: dict[tuple[str, ...], list[Outcome]] = {}
        for outcome in outcomes:
            groups.setdefault(tuple(outcome.trial.labels.values()), []).append(outcome)
        numbers = {
            labels: [numbers_of(outcome.directory.summary) for outcome in group if outcome.directory.is_complete]
            for labels, group in groups.items()
        }
        rows = tuple(
            Row(labels, len(numbers[labels]), len(group), _cells(numbers[labels])) for labels, group in groups.items()
        )
        known = {column.key: column for column in common_columns()}
        views: dict[str, None] = {}
        for row in rows:
            for key in row.cells:
                if key.startswith(_VIEW):
                    views[key.removeprefix(_VIEW).partition(":")[0]] = None
                else:
                    known.setdefault(key, Column(key, f"{key} %", percent, with_std=True))
        titles = tuple(outcomes[0].trial.labels) if outcomes else ()
        differences = Differences.between(
            list(groups.values()), [row_name(titles, labels) for labels in groups], against
        )
        return cls(titles, tuple(known.values()), rows, differences, tuple(views))

    def to_csv(self) -> str:
        """All numbers in full precision; shares are in [0, 1]."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        columns = [*self.columns, *(_view_column(name, when) for name in self.views for when in WHEN)]
        names = [f"{_csv_name(column.key)}_{what}" for column in columns for what in ("mean", "std")]
        writer.writerow([*self.labels, "runs", *names, *self.differences.csv_titles])
        for number, row in enumerate(self.rows):
            cells = [row.cells.get(column.key) for column in columns]
            values = [value for cell in cells for value in ((cell.mean, cell.std) if cell else (None, None))]
            writer.writerow([*row.labels, row.n, *values, *self.differences.csv_values(number)])
        return file.getvalue()

    def to_markdown(self) -> str:
        """For a paper or an issue."""
        header = [*self.labels, "runs", *(column.title for column in self.columns)]
        rows = [[*row.labels, row.runs, *self.texts(row, self.columns)] for row in self.rows]
        parts = [
            _markdown(header, rows, [*self.labels]),
            "Accuracy is the mean over clients; all numbers are means over runs, ± the sample standard deviation.\n",
        ]
        if seen := self.view_lines():
            parts += [_markdown([*self.labels, "", *self.view_titles], seen, [*self.labels, ""]), f"{VIEWS_NOTE}\n"]
        if lines := self.differences.lines():
            parts += [_markdown(self.differences.titles, lines, ["", "in words"]), f"{self.differences.note}\n"]
        return "\n".join(parts)

    def texts(self, row: Row, columns: Sequence[Column]) -> list[str]:
        """A row's numbers for people."""
        return [row.cells[column.key].text(column) if column.key in row.cells else "-" for column in columns]

    @property
    def view_titles(self) -> list[str]:
        """The titles of the views' columns."""
        return [f"{name} %" for name in self.views]

    def view_lines(self) -> list[list[str]]:
        """For people: three lines for each row, its labels, which evaluations it is of, the accuracy in each view."""
        return [
            [*row.labels, text, *self.texts(row, [_view_column(name, when) for name in self.views])]
            for row in (self.rows if self.views else ())
            for when, text in WHEN.items()
        ]

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write table.csv and table.md."""
        paths = folder / "table.csv", folder / "table.md"
        write_atomically(paths[0], self.to_csv())
        write_atomically(paths[1], self.to_markdown())
        return paths


def numbers_of(summary: dict[str, Any]) -> dict[str, float]:
    """The numbers of one run."""
    final = summary["final"]  # empty where real sites do not tell how well they do
    told = {"accuracy": "accuracy", "worst_decile": "accuracy_worst_decile"}
    told |= {key: key for key, metric in METRICS.items() if metric.is_share}
    numbers = {
        **{key: final[name] for key, name in told.items() if name in final},
        "bytes": sum(summary["communication"].values()),
        "seconds": summary["seconds"]["train"],
    }
    if "joined" in summary:
        numbers["joined_accuracy"] = summary["joined"]["accuracy"]
    numbers |= {f"accuracy_{name}": domain["accuracy"] for name, domain in summary["domains"].items()}
    return numbers | {_view_key(name, when): value for (name, when), value in view_numbers(summary).items()}


def _csv_name(key: str) -> str:
    """A key as the name of a column: "novel_global_part_best" for the best of that view."""
    return re.sub(r"\W+", "_", key.removeprefix(_VIEW)).lower() if key.startswith(_VIEW) else key


def _view_key(name: str, when: str) -> str:
    return f"{_VIEW}{name}:{when}"


def _view_column(name: str, when: str) -> Column:
    return Column(_view_key(name, when), name, percent, with_std=True)


def _cells(runs: Sequence[dict[str, float]]) -> dict[str, Cell]:
    keys = [key for key in runs[0] if all(key in numbers for numbers in runs)] if runs else []
    return {key: _cell([numbers[key] for numbers in runs]) for key in keys}


def _cell(values: Sequence[float]) -> Cell:
    return Cell(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def row_name(titles: Sequence[str], labels: Sequence[str]) -> str:
    """What to call a row in a sentence."""
    if len(titles) == 1 and "." not in titles[0]:
        return labels[0]
    return ", ".join(f"{title}={label}" for title, label in zip(titles, labels, strict=True))


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[str]) -> str:
    """A table whose columns `words` are no numbers."""
    rule = ["---" if title in words else "---:" for title in header]
    return "".join(f"| {' | '.join(_escape(cells))} |\n" for cells in (header, rule, *rows))


def _escape(cells: Iterable[str]) -> list[str]:
    return [" ".join(cell.split()).replace("|", "\\|") for cell in cells]
