"""Comparison of the paper's numbers with ours, cell by cell."""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedotp._files import write_atomically
from fedotp.paper._entry import Cell, Entry, Number, Part, numbers
from fedotp.paper._entry_runs import Made, changed, data_used
from fedotp.runs.many import Outcome
from fedotp.runs.tables import Difference, Differences, Pair, Row, Table, complete, markdown, numbers_of, paired

_CSV = (
    *("label", "method", "dataset", "setting", "paper_mean", "paper_std", "here_mean", "here_std", "last_five_mean"),
    *("runs", "runs_asked", "here_minus_paper", "here_minus_paper_low", "here_minus_paper_high", "against"),
    *("paper_minus_reference", "here_minus_reference", "low", "high", "p", "p_holm", "pairs", "splits", "not_above"),
)
GRID = "paper / here, %."
_NOTE = (
    "Accuracies in per cent, mean over clients, then over runs. Differences from the paper treat its mean as a "
    "constant; those between methods are paired by split and seed; 95 % intervals by Student's t."
)
_SPREAD = {
    "seeds": "± is the standard deviation over runs, in the paper over its three seeds.",
    "clients": "± is the standard deviation over clients, of the domain or all; here its mean over runs.",
    "": "± is the standard deviation over runs; the paper prints none.",
}


@dataclass(frozen=True)
class Line:
    """A cell of the paper with the results of our runs, as shares; the paper's numbers are in per cent.

    `beside` is ours - the paper's; `gap` ours - the baseline's, None for the baseline itself, `word` its verdict;
    `paper_gap` that of the paper, in points; `not_above` are the controls that the method is not significantly above,
    `flagged` is True if there is a warning about one.
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
        """Our printed number; "-" if there is none yet."""
        if self.mean is None:
            return "-"
        return f"{100 * self.mean:.2f}" + ("" if self.std is None else f" ± {100 * self.std:.2f}")

    @property
    def both(self) -> str:
        """The paper's mean and ours."""
        paper = "-" if self.paper is None else f"{self.paper.mean:.2f}"
        return f"{paper} / {'-' if self.mean is None else f'{100 * self.mean:.2f}'}"

    @property
    def n_runs(self) -> str:
        """The number of runs, as text."""
        return str(self.runs) if self.runs == self.asked else f"{self.runs} of {self.asked}"


@dataclass(frozen=True)
class Block:
    """The cells of one data set in one setting, with controls, warnings and notes."""

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
    """Return a block for each setting of a part."""
    if not outcomes:
        return []
    rows = list(entry.methods)
    reference = rows.index(entry.against)
    groups = {row: [o for o in outcomes if o.trial.called == row] for row in rows}
    summaries = {row: dict(complete(group)) for row, group in groups.items()}
    last = {
        row: [s["last_five"]["accuracy"] for s in each.values() if s.get("last_five")]
        for row, each in summaries.items()
    }
    table = Table.of(outcomes, reference)
    checked = {row.labels[0]: row for row in table.rows}
    blocks = []
    for setting, key in part.cells.items():
        ours = [_numbers(summaries[row], key) for row in rows]
        differences = Differences.of_numbers(ours, rows, reference)
        paper = numbers(entry.name)
        printed = [paper.get(Cell(row, part.dataset, setting)) for row in rows]
        theirs, whole = printed[reference], key == "accuracy"
        lines = tuple(
            Line(
                Cell(row, part.dataset, setting),
                own,
                statistics.fmean(ours[i].values()) if ours[i] else None,
                _spread(entry, ours[i], [*summaries[row].values()], key),
                statistics.fmean(last[row]) if whole and last[row] else None,
                len(ours[i]),
                len(groups[row]),
                paired(ours[i], dict.fromkeys(ours[i], own.mean / 100)) if own else None,  # a constant
                own.mean - theirs.mean if own and theirs and i != reference else None,
                differences.of[i],
                differences.together[i],
                differences.word(i).removesuffix(f" {entry.against}") if differences.of[i] else "",
                tuple(checked[row].not_above) if whole else (),
                whole and bool(checked[row].flagged),
            )
            for i, (row, own) in enumerate(zip(rows, printed, strict=True))
        )
        controls = tuple(row for row in table.controls if row.n) if whole else ()
        said = (tuple(table.warnings), tuple(table.notes)) if whole else ((), ())
        blocks.append(Block(part.dataset, setting, lines, controls, *said))
    return blocks


def _numbers(summaries: Mapping[Pair, Mapping[str, Any]], key: str) -> dict[Pair, float]:
    found = {pair: numbers_of(summary) for pair, summary in summaries.items()}
    return {pair: values[key] for pair, values in found.items() if key in values}


def _spread(entry: Entry, ours: dict[Pair, float], summaries: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return our deviation (±): over a domain's clients as in the paper, else over runs."""
    if entry.spread != "clients":
        return statistics.stdev(ours.values()) if len(ours) > 1 else None
    domain = key.removeprefix("accuracy_")
    of_runs = [summary["final"] if key == "accuracy" else summary["domains"].get(domain, {}) for summary in summaries]
    found = [numbers["accuracy_std"] for numbers in of_runs if "accuracy_std" in numbers]
    return statistics.fmean(found) if found else None


class Grid(NamedTuple):
    """Methods by settings: `rows` begin with the method, followed by a text for each of `columns`."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Result:
    """A table or figure of the paper with our results.

    `data` describes the images of the runs, `changed` settings that differ from those of the entry.
    """

    entry: Entry
    blocks: tuple[Block, ...]
    data: tuple[str, ...]
    changed: tuple[str, ...]

    @classmethod
    def of(cls, entry: Entry, made: Made) -> "Result":
        """Make the result of the complete runs of `made`."""
        blocks = [block for part, outcomes in made for block in blocks_of(entry, part, outcomes)]
        return cls(entry, tuple(blocks), tuple(data_used(made)), tuple(changed(entry, made)))

    @property
    def all_lines(self) -> list[Line]:
        """Lines of all blocks."""
        return [line for block in self.blocks for line in block.lines]

    @property
    def notes(self) -> list[str]:
        """Explanations of the numbers, and differences from the paper."""
        return [
            *((_NOTE, _SPREAD[self.entry.spread]) if self.blocks else ()),
            *self.entry.differs,
            *self.data,
            *([f"Changed settings, which override the above: {'; '.join(self.changed)}."] if self.changed else []),
        ]

    @property
    def titles(self) -> list[str]:
        """Titles of the columns of `rows` after the first, which is the method."""
        gap = f"minus {self.entry.against}"
        return ["paper %", "here %", "minus paper", "runs", f"{gap}: paper", f"{gap}: here", "95 % interval", "verdict"]

    def rows(self, block: Block) -> list[list[str]]:
        """Return a block as printed texts: methods, then controls."""
        lines = [
            [
                line.cell.method + (" (!)" if line.flagged else ""),
                "-" if line.paper is None else str(line.paper),
                line.ours,
                "-" if line.beside is None else line.beside.points,
                line.n_runs,
                "-" if line.paper_gap is None else f"{line.paper_gap:+.2f}",
                "-" if line.gap is None else line.gap.points,
                "-" if line.gap is None else line.gap.interval,
                line.word,
            ]
            for line in block.lines
        ]
        for row in block.controls:
            mean = row.cells["accuracy"].mean
            lines.append([f"control: {row.labels[0]}", "-", f"{100 * mean:.2f}", "-", row.runs, "-", "-", "-", ""])
        return lines

    def grids(self) -> list[Grid]:
        """Return the table in the layout of the paper, with both numbers in each cell; by data set if those vary."""
        datasets: dict[str, list[Block]] = {}
        for block in self.blocks:
            datasets.setdefault(block.dataset if block.setting else "", []).append(block)
        found = []
        for dataset, blocks in datasets.items():
            rows = [
                [line.cell.method, *(block.lines[i].both for block in blocks)] for i, line in enumerate(blocks[0].lines)
            ]
            found.append(Grid(dataset, [block.setting or block.dataset for block in blocks], rows))
        return found

    def to_csv(self) -> str:
        """Return all cells in full precision: ours as shares, the paper's in per cent as printed."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_CSV)
        for line in self.all_lines:
            paper, beside, gap = line.paper, line.beside, line.gap
            writer.writerow(
                [
                    *(self.entry.label, line.cell.method, line.cell.dataset, line.cell.setting),
                    *((paper.mean, paper.std) if paper else (None, None)),
                    *(line.mean, line.std, line.last_five, line.runs, line.asked),
                    *((beside.mean, beside.low, beside.high) if beside else (None, None, None)),
                    *(self.entry.against, line.paper_gap),
                    *((gap.mean, gap.low, gap.high, gap.p) if gap else (None,) * 4),
                    line.together,
                    *((gap.pairs, gap.groups) if gap else (None, None)),
                    " ".join(line.not_above),
                ]
            )
        return file.getvalue()

    def to_markdown(self) -> str:
        """Return the result with all notes as Markdown."""
        parts = [f"# {self.entry.called}: {self.entry.title}\n"]
        for grid in self.grids():
            parts += [f"{grid.title}: {GRID}\n" if grid.title else f"{GRID[0].upper()}{GRID[1:]}\n"]
            parts += [markdown(["", *grid.columns], grid.rows, [""])]
        for block in self.blocks:
            parts += [f"## {block.title}\n", markdown(["", *self.titles], self.rows(block), ["", "verdict"])]
            parts += [f"{sentence}\n" for sentence in (*block.warnings, *block.notes)]
        parts += ["".join(f"- {note}\n" for note in self.notes)]
        return "\n".join(parts)

    def save(self, folder: Path) -> list[Path]:
        """Write the table as CSV and Markdown, named after the entry."""
        paths = [folder / f"{self.entry.name}.csv", folder / f"{self.entry.name}.md"]
        for path, text in zip(paths, (self.to_csv(), self.to_markdown()), strict=True):
            write_atomically(path, text)
        return paths
