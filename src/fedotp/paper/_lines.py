"""The cells of a table of the paper, each beside what was run for it."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedotp.paper._entry import Cell, Entry, Number, Part, numbers
from fedotp.runs.many import Outcome
from fedotp.runs.tables import Difference, Differences, Pair, Row, Table, numbers_of, paired


@dataclass(frozen=True)
class Line:
    """A cell of the paper beside what was run for it; shares, where the paper's numbers are per cent.

    `beside` is ours less the paper's; `gap` ours less the reference's, None for the reference itself, `word` what can
    be said of it; `paper_gap` the same of the paper, in points; `not_above` are the controls that the method is not
    significantly above, `flagged` whether one of them says that something may be wrong.
    """

    cell: Cell
    paper: Number | None
    mean: float | None
    std: float | None
    last_five: float | None
    runs: int
    asked: int
    beside: Difference | None
    paper_gap: float | None
    gap: Difference | None
    together: float | None
    word: str
    not_above: tuple[str, ...]
    flagged: bool

    @property
    def ours(self) -> str:
        """Our number for people; a line where there is none yet."""
        if self.mean is None:
            return "-"
        return f"{100 * self.mean:.2f}" + ("" if self.std is None else f" ± {100 * self.std:.2f}")

    @property
    def n_runs(self) -> str:
        """How many runs it is of."""
        return str(self.runs) if self.runs == self.asked else f"{self.runs} of {self.asked}"


@dataclass(frozen=True)
class Block:
    """The cells of one data set in one setting, the controls beside them, and what must be said of those."""

    dataset: str
    setting: str
    lines: tuple[Line, ...]
    controls: tuple[Row, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """Data set and setting."""
        return ", ".join(filter(None, (self.dataset, self.setting)))


def blocks_of(entry: Entry, part: Part, outcomes: Sequence[Outcome]) -> list[Block]:
    """One block for each setting whose cells the runs of a part fill."""
    if not outcomes:
        return []
    rows = list(entry.methods)
    reference = rows.index(entry.against)
    groups = {row: [o for o in outcomes if o.trial.called == row] for row in rows}
    summaries = {row: _summaries(group) for row, group in groups.items()}
    table = Table.of(outcomes, reference)
    checked = {row.labels[0]: row for row in table.rows}
    blocks = []
    for setting, key in part.cells.items():
        ours = [_numbers(summaries[row], key) for row in rows]
        differences = Differences.of_numbers(ours, rows, reference)
        paper = numbers(entry.name)
        printed = [paper.get(Cell(row, part.dataset, setting)) for row in rows]
        whole = key == "accuracy"
        lines = tuple(
            Line(
                Cell(row, part.dataset, setting),
                printed[i],
                statistics.fmean(ours[i].values()) if ours[i] else None,
                _spread(entry, ours[i], [*summaries[row].values()], key),
                _last_five([*summaries[row].values()]) if whole else None,
                len(ours[i]),
                len(groups[row]),
                _beside(ours[i], printed[i]),
                _paper_gap(printed[i], printed[reference]) if i != reference else None,
                differences.of[i],
                differences.together[i],
                _word(differences, i),
                tuple(checked[row].not_above) if whole else (),
                whole and bool(checked[row].flagged),
            )
            for i, row in enumerate(rows)
        )
        controls = tuple(row for row in table.controls if row.n) if whole else ()
        said = (tuple(table.warnings), tuple(table.notes)) if whole else ((), ())
        blocks.append(Block(part.dataset, setting, lines, controls, *said))
    return blocks


def _summaries(group: Sequence[Outcome]) -> dict[Pair, dict[str, Any]]:
    """The summaries of those that are complete, by split and seed."""
    return {
        (outcome.trial.config.partition.seed, outcome.trial.config.seed): outcome.directory.summary
        for outcome in group
        if outcome.directory.is_complete
    }


def _numbers(summaries: dict[Pair, dict[str, Any]], key: str) -> dict[Pair, float]:
    found = {pair: numbers_of(summary) for pair, summary in summaries.items()}
    return {pair: values[key] for pair, values in found.items() if key in values}


def _spread(entry: Entry, ours: dict[Pair, float], summaries: list[dict[str, Any]], key: str) -> float | None:
    """What stands behind our ±: as in the paper over a domain's clients, or else over runs."""
    if entry.spread != "clients":
        return statistics.stdev(ours.values()) if len(ours) > 1 else None
    domain = key.removeprefix("accuracy_")
    of_runs = [summary["final"] if key == "accuracy" else summary["domains"].get(domain, {}) for summary in summaries]
    found = [numbers["accuracy_std"] for numbers in of_runs if "accuracy_std" in numbers]
    return statistics.fmean(found) if found else None


def _last_five(summaries: list[dict[str, Any]]) -> float | None:
    found = [summary["last_five"]["accuracy"] for summary in summaries if summary.get("last_five")]
    return statistics.fmean(found) if found else None


def _beside(ours: dict[Pair, float], paper: Number | None) -> Difference | None:
    """Ours less the paper's, whose mean is taken for a fixed number."""
    return None if paper is None else paired(ours, dict.fromkeys(ours, paper.mean / 100))


def _word(differences: Differences, number: int) -> str:
    """What can be said of a row; the column's title says against which."""
    against = differences.names[differences.reference]
    word = differences.word(number) if differences.of[number] else ""
    return word.removesuffix(f" {against}")


def _paper_gap(one: Number | None, other: Number | None) -> float | None:
    return None if one is None or other is None else one.mean - other.mean
