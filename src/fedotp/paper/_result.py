"""The paper's numbers beside ours: what a table of the paper becomes when it is run."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedotp._files import write_atomically
from fedotp.paper._entry import Entry
from fedotp.paper._entry_runs import Made, changed, data_used
from fedotp.paper._lines import Block, Line, blocks_of
from fedotp.runs.tables import markdown

_CSV = (
    *("label", "method", "dataset", "setting", "paper_mean", "paper_std", "here_mean", "here_std", "last_five_mean"),
    *("runs", "runs_asked", "here_minus_paper", "here_minus_paper_low", "here_minus_paper_high", "against"),
    *("paper_minus_reference", "here_minus_reference", "low", "high", "p", "p_holm", "pairs", "splits", "not_above"),
)
GRID = "paper / here, %."
_NOTE = (
    "Accuracies in per cent, mean over clients, then over runs. Differences from the paper take its mean for a fixed "
    "number; those between methods are paired by split and seed; intervals are of 95 %, Student's."
)
_SPREAD = {
    "seeds": "± is the standard deviation over runs, in the paper over its three seeds.",
    "clients": "± is the standard deviation over clients, of the domain or all; here its mean over runs.",
    "": "± is the standard deviation over runs; the paper prints none.",
}


class Grid(NamedTuple):
    """Methods by settings: `rows` begin with the method, and have a text for each of `columns`."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Result:
    """A table or figure of the paper with what was run for it.

    `data` says which images the runs had, `changed` what was set otherwise than the entry says.
    """

    entry: Entry
    blocks: tuple[Block, ...]
    data: tuple[str, ...]
    changed: tuple[str, ...]

    @classmethod
    def of(cls, entry: Entry, made: Made) -> "Result":
        """What is complete of the runs `made`."""
        blocks = [block for part, outcomes in made for block in blocks_of(entry, part, outcomes)]
        return cls(entry, tuple(blocks), tuple(data_used(made)), tuple(changed(entry, made)))

    @property
    def n_filled(self) -> int:
        """How many cells have a number of ours."""
        return sum(line.mean is not None for line in self.all_lines)

    @property
    def all_lines(self) -> list[Line]:
        """Those of all blocks."""
        return [line for block in self.blocks for line in block.lines]

    @property
    def notes(self) -> list[str]:
        """What the numbers are, and in what they differ from the paper's."""
        return [
            *((_NOTE, _SPREAD[self.entry.spread]) if self.blocks else ()),
            *self.entry.differs,
            *self.data,
            *([f"Set otherwise, whatever is said above: {'; '.join(self.changed)}."] if self.changed else []),
        ]

    @property
    def titles(self) -> list[str]:
        """Of the columns of `rows`, the first of which is the method's."""
        gap = f"minus {self.entry.against}"
        return ["paper %", "here %", "less paper", "runs", f"{gap}: paper", f"{gap}: here", "95 % interval", "in words"]

    def rows(self, block: Block) -> list[list[str]]:
        """A block for people: methods, then controls."""
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
        """The table as the paper lays it out, its number and ours in each cell; by data set where those vary."""
        datasets: dict[str, list[Block]] = {}
        for block in self.blocks:
            datasets.setdefault(block.dataset if block.setting else "", []).append(block)
        found = []
        for dataset, blocks in datasets.items():
            rows = [
                [line.cell.method, *(_beside(block.lines[i]) for block in blocks)]
                for i, line in enumerate(blocks[0].lines)
            ]
            found.append(Grid(dataset, [block.setting or block.dataset for block in blocks], rows))
        return found

    def to_csv(self) -> str:
        """Every cell in full precision; those of our runs as shares, the paper's in per cent as printed."""
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
        """For a paper or an issue."""
        parts = [f"# {self.entry.called}: {self.entry.title}\n"]
        for grid in self.grids():
            parts += [f"{grid.title}: {GRID}\n" if grid.title else f"{GRID[0].upper()}{GRID[1:]}\n"]
            parts += [markdown(["", *grid.columns], grid.rows, [""])]
        for block in self.blocks:
            parts += [f"## {block.title}\n", markdown(["", *self.titles], self.rows(block), ["", "in words"])]
            parts += [f"{sentence}\n" for sentence in (*block.warnings, *block.notes)]
        parts += ["".join(f"- {note}\n" for note in self.notes)]
        return "\n".join(parts)

    def save(self, folder: Path) -> list[Path]:
        """Write the table as CSV and Markdown, named after the entry."""
        paths = [folder / f"{self.entry.name}.csv", folder / f"{self.entry.name}.md"]
        for path, text in zip(paths, (self.to_csv(), self.to_markdown()), strict=True):
            write_atomically(path, text)
        return paths


def _beside(line: Line) -> str:
    paper = "-" if line.paper is None else f"{line.paper.mean:.2f}"
    return f"{paper} / {'-' if line.mean is None else f'{100 * line.mean:.2f}'}"
