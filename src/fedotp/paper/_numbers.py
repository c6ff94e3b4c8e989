"""The paper's numbers: every cell of its tables with results, as printed, in `numbers/<table>.csv`."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Cell:
    """Where a number stands: the method of its row, the data set and, where a table varies one, the setting."""

    method: str
    dataset: str
    setting: str = ""


@dataclass(frozen=True)
class Number:
    """A number of the paper in per cent, and the deviation behind its ±; None where none is printed."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ± {self.std:.2f}")


@cache
def numbers(name: str) -> dict[Cell, Number]:
    """The numbers of the table `name`, such as "table1", in its order; none for a figure."""
    file = files("fedotp").joinpath("paper", "numbers", f"{name}.csv")
    if not file.is_file():
        return {}
    return {
        Cell(line["method"], line["dataset"], line["setting"]): Number(
            float(line["mean"]), float(line["std"]) if line["std"] else None
        )
        for line in csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    }
