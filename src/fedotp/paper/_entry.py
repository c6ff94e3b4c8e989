"""An entry: a table or figure of the paper, its printed numbers (`numbers/<table>.csv`), and its runs."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

from fedotp.errors import FedotpError, listed

if TYPE_CHECKING:  # importing torch takes a second, too long for completion
    from fedotp.config import Config

Drawing = Literal["against shots", "curves", "similarity", "maps", "tsne", "partition"]
"""Figures that are drawn from runs; "partition" needs only data."""

WHOLE = {"": "accuracy"}


@dataclass(frozen=True)
class Part:
    """Runs on the same data, one for each method and seed.

    Attributes:
        dataset: name of the data in the paper.
        preset: the configuration they start from.
        changes: changes of it, as for `--set`.
        cells: the settings of the paper's cells that these runs fill, each with the key of the run's number.
    """

    dataset: str
    preset: str
    changes: tuple[str, ...] = ()
    cells: Mapping[str, str] = field(default_factory=lambda: WHOLE)

    def config(self, changes: Sequence[str] = ()) -> "Config":
        """Return the configuration of its runs, `changes` as for `--set`; method and seed are those of the preset."""
        from fedotp.config import load_config

        return load_config(self.preset).override([*self.changes, *changes])

    @property
    def folder(self) -> str:
        """Folder of its runs, below that of all entries; several entries can share a part."""
        return ",".join([self.preset, *self.changes]).replace("/", "-")

    @property
    def title(self) -> str:
        """The data set, and the setting if all its cells have the same."""
        setting = next(iter(self.cells)) if len(self.cells) == 1 else ""
        return f"{self.dataset}, {setting}" if setting else self.dataset


@dataclass(frozen=True)
class Entry:
    """A table or a figure of the paper.

    Attributes:
        name: its name on the command line.
        label: its label in the paper's source.
        title: its description.
        parts: its runs, by data.
        methods: its rows as named in the paper, each with the method as for `fedotp compare --methods`.
        against: the baseline row.
        spread: the meaning of the paper's ±; "" if it prints none.
        drawing: the kind of figure to draw from the runs.
        differs: differences from the paper, in sentences.
    """

    name: str
    label: str
    title: str
    parts: tuple[Part, ...]
    methods: Mapping[str, str]
    against: str = ""
    spread: Literal["seeds", "clients", ""] = "seeds"
    drawing: Drawing | None = None
    differs: tuple[str, ...] = ()

    @property
    def called(self) -> str:
        """Its printed name, such as Table A2."""
        kind = "Table" if self.name.startswith("table") else "Figure"
        return f"{kind} {self.name.removeprefix(kind.lower())}"

    def only(self, words: Sequence[str]) -> "Entry":
        """Restrict it to these data sets and methods, each named as in the table or by its preset."""
        parts, methods, wrong = set[str](), set[str](), list[str]()
        for word in words:
            wanted = plain(word)
            of_parts = {p.folder for p in self.parts if wanted in map(plain, (p.dataset, p.preset, p.title, p.folder))}
            of_methods = {row for row, method in self.methods.items() if wanted in (plain(row), plain(method))}
            parts |= of_parts
            methods |= of_methods
            wrong += [] if of_parts or of_methods else [word]
        if wrong:
            known = [*dict.fromkeys(part.dataset for part in self.parts), *self.methods]
            raise FedotpError(f"--only {wrong[0]}: must be data sets or methods of {self.called}: {listed(known)}")
        kept = {row: method for row, method in self.methods.items() if not methods or row in methods}
        return replace(
            self,
            parts=tuple(part for part in self.parts if not parts or part.folder in parts),
            methods=kept,
            against=self.against if self.against in kept else next(iter(kept), ""),
        )


def plain(text: str) -> str:
    """Return a name in lower case without spaces and signs: Table A2 becomes tablea2."""
    return "".join(c for c in text.lower() if c.isalnum())


@dataclass(frozen=True)
class Cell:
    """The position of a number: the method of its row, the data set and, if varied, the setting."""

    method: str
    dataset: str
    setting: str = ""


@dataclass(frozen=True)
class Number:
    """A number of the paper in per cent, and its printed deviation (±) or None."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ± {self.std:.2f}")


@cache
def numbers(name: str) -> dict[Cell, Number]:
    """Read the numbers of the table `name`, such as "table1", in its order; none for a figure."""
    file = files("fedotp").joinpath("paper", "numbers", f"{name}.csv")
    if not file.is_file():
        return {}
    return {
        Cell(line["method"], line["dataset"], line["setting"]): Number(
            float(line["mean"]), float(line["std"]) if line["std"] else None
        )
        for line in csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    }
