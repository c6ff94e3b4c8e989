"""Several runs on one page: their groups, names, and differing settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedotp.config import difference, flatten
from fedotp.errors import FedotpError, listed
from fedotp.methods import FedOTP
from fedotp.report.figure import COLOURS
from fedotp.runs.directory import RunDirectory
from fedotp.runs.many import Outcome, Trial
from fedotp.runs.tables import Row, Table

_SAME = {"data.root", "data.store", "compute.device", "compute.group_size", "compute.threads"}
_REPEATED = {"partition.seed": "split", "seed": "seed"}
"""Settings that do not distinguish groups: paths and devices; splits and seeds."""


@dataclass(frozen=True)
class Named:
    """A run's name on the page; runs that differ only in split and seed form one `group` with one `label`."""

    group: int
    label: str
    title: str
    colour: str


def name_runs(runs: Sequence[RunDirectory]) -> list[Named]:
    """Name runs by method and differing settings, and by split and seed if there are several."""
    groups: list[list[RunDirectory]] = []
    places: list[tuple[int, int]] = []
    for run in runs:
        firsts = (group[0] for group in groups)
        alike = (g for g, a in enumerate(firsts) if a.is_deployed == run.is_deployed and not _differing(a, run))
        if (g := next(alike, len(groups))) == len(groups):
            groups.append([])
        groups[g].append(run)
        places.append((g, len(groups[g]) - 1))
    labels = [_label(group[0], [other[0] for other in groups]) for group in groups]
    named = []
    for run, (g, i) in zip(runs, places, strict=True):
        repeats = [tuple(flatten(other.config)[key] for key in _REPEATED) for other in groups[g]]
        differing = [
            f", {word} {number}"
            for word, number, each in zip(_REPEATED.values(), repeats[i], zip(*repeats, strict=True), strict=True)
            if len(set(each)) > 1
        ]
        title = labels[g] + "".join(differing)
        if repeats.count(repeats[i]) > 1:  # the same run twice: named by its directory
            title = f"{title} ({run.path.resolve().name})"
        named.append(Named(g, labels[g], title, COLOURS[g % len(COLOURS)]))
    return named


def compare(runs: Sequence[RunDirectory], named: Sequence[Named], against: str | None = None) -> dict[str, Any]:
    """Make the comparison table: a row per group with means over its runs; controls; differences.

    The baseline is the row `against`; if None, FedOTP, else the first row.
    """
    outcomes = [
        Outcome(Trial(run.path.name, {"run": str(name.group)}, run.config, name.label), run)
        for run, name in zip(runs, named, strict=True)
    ]
    table = Table.of(outcomes)
    called = [row.called for row in table.rows]
    if against is not None and against not in called:
        raise FedotpError(f"--against {against}: must be a method as named in the table: {listed(called)}")
    if (wanted := against or FedOTP.title) in called:
        table = Table.of(outcomes, called.index(wanted))
    label = {name.group: name.label for name in named}
    return {
        "columns": [{"key": column.key, "title": column.title, "better": column.better} for column in table.columns],
        "rows": [{**_row(table, row), "group": int(row.labels[0])} for row in table.rows],
        "views": [
            {"by": by, "titles": titles, "lines": [[label[int(group)], *texts] for group, *texts in lines]}
            for by, titles, lines in table.view_tables()
        ],
        "controls": [_row(table, row) for row in table.controls],
        "warnings": table.warnings,
        "notes": table.notes,
        "differences": {
            "reference": table.differences.names[table.differences.reference] if table.rows else "",
            "titles": table.differences.titles if table.rows else (),
            "lines": table.differences.lines(),
            "note": table.differences.note,
        },
    }


def _row(table: Table, row: Row) -> dict[str, Any]:
    cells = [row.cells.get(column.key) for column in table.columns]
    return {
        "label": row.called,
        "marked": bool(row.flagged),
        "runs": row.runs,
        "cells": [
            None if cell is None else {"value": cell.mean, "std": cell.std, "text": cell.text(column)}
            for cell, column in zip(cells, table.columns, strict=True)
        ],
    }


def differing_settings(runs: Sequence[RunDirectory]) -> list[dict[str, Any]]:
    """Return the settings that differ between runs, each with its value in every run."""
    keys = {key: None for run in runs[1:] for key in difference(runs[0].config, run.config)}
    values = {key: [flatten(run.config).get(key) for run in runs] for key in keys}
    return [{"key": key, "values": row} for key, row in values.items()]


def _differing(a: RunDirectory, b: RunDirectory) -> list[str]:
    return [key for key in difference(a.config, b.config) if key not in _SAME | _REPEATED.keys()]


def _label(run: RunDirectory, all_: Sequence[RunDirectory]) -> str:
    """Return the method's title with settings that differ from others of the same method."""
    title = run.config.title
    rivals = [other for other in all_ if other.config.title == title]
    keys = {key: None for other in rivals for key in _differing(run, other)}
    flat = flatten(run.config)
    parts = [f"{key.removeprefix('method.')} {flat[key]}" for key in keys if flat.get(key) is not None]
    if len({other.is_deployed for other in rivals}) > 1:
        parts.insert(0, "real sites" if run.is_deployed else "simulated")
    return ", ".join([title, *parts])
