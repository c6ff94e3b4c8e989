"""The columns of a table: numbers of a run, and their means over several runs."""

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedotp._text import n_bytes, percent
from fedotp.federation import METRICS

WHEN = {"last": "last", "best": "best", "last_five": "last 5"}
"""Evaluations of a run: after the last round, after the best, or the mean over the last five rounds."""
_GLOBAL_PART = ", global part"  # suffix of views by the global model
_VIEW = "view:"  # prefix of the keys of views


@dataclass(frozen=True)
class Column:
    """A column: name in files, printed title, format of a value, and True if its standard deviation is printed.

    `better` is None if neither direction is better; `if_wide` columns are printed only in wide terminals.
    """

    key: str
    title: str
    write: Callable[[float], str]
    with_std: bool = False
    better: Literal["higher", "lower"] | None = "higher"
    if_wide: bool = False


@dataclass(frozen=True)
class Cell:
    """A mean over runs; `std` is the sample standard deviation, None for a single run."""

    mean: float
    std: float | None

    def text(self, column: Column) -> str:
        """Return the printed text."""
        spread = f" ± {column.write(self.std)}" if column.with_std and self.std is not None else ""
        return column.write(self.mean) + spread


def common_columns() -> tuple[Column, ...]:
    """Return the columns of every table; others follow. Accuracy is that after the last round."""
    accuracy, balanced, *others = (
        Column(m.key, m.heading, m.write, with_std=m.key == "accuracy", better=m.better, if_wide=m.if_wide)
        for m in METRICS.values()
        if m.is_share
    )
    return (
        accuracy,
        balanced,
        Column("with_prior", "with prior %", percent),
        Column("best", "best %", percent),
        Column("last_five", "last 5 %", percent),
        Column("worst_decile", "worst decile %", percent),
        *others,
        Column("lr", "learning rate", "{:g}".format, better=None, if_wide=True),
        Column("bytes", "traffic", n_bytes, better=None, if_wide=True),
        Column("seconds", "training seconds", "{:.1f}".format, better=None, if_wide=True),
    )


def numbers_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of one run."""
    numbers = {
        **shares_of(summary["final"]),  # empty if real sites report no evaluation
        "bytes": sum(summary["communication"].values()),
        "seconds": summary["seconds"]["train"],
    }
    numbers |= {key: summary[key]["accuracy"] for key in ("best", "last_five") if summary.get(key)}
    if summary.get("with_prior"):
        numbers["with_prior"] = summary["with_prior"]["accuracy"]
    if "optimizer" in summary:
        numbers["lr"] = summary["optimizer"]["lr"]
    if "joined" in summary:
        numbers["joined_accuracy"] = summary["joined"]["accuracy"]
    numbers |= {f"accuracy_{name}": domain["accuracy"] for name, domain in summary["domains"].items()}
    return numbers | {_view_key(name, when): value for (name, when), value in view_numbers(summary).items()}


def shares_of(totals: Mapping[str, float]) -> dict[str, float]:
    """Return the shares among the numbers of an evaluation, by their keys in tables."""
    names = {"accuracy": "accuracy", "worst_decile": "accuracy_worst_decile"}
    names |= {key: key for key, metric in METRICS.items() if metric.is_share}
    return {key: totals[name] for key, name in names.items() if name in totals}


def view_numbers(summary: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Return the accuracies of a run by view, such as "base" or "novel, global part", and by one of WHEN."""
    numbers: dict[tuple[str, str], float] = {}
    if "accuracy" in summary["final"]:
        own = {"last": summary["final"], "best": summary["best"], "last_five": summary["last_five"]}
        numbers |= {("personal", when): values["accuracy"] for when, values in own.items()}
    named = {_title(view["view"], view["model"]): view for view in summary.get("views", ())}
    for model, found in summary.get("base_to_novel", {}).items():
        named |= {_title(name.upper(), model): found[name] for name in ("hm", "hm3", "cm")}
    return numbers | {(name, when): values[when] for name, values in named.items() for when in WHEN}


def _title(name: str, model: str) -> str:
    return name if model == "personal" or name == "global" else f"{name}{_GLOBAL_PART}"


def by_model(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Group names of views by their model; values are titles without the model."""
    parts: dict[str, dict[str, str]] = {"personal models": {}, "global part alone": {}}
    of_clients, of_global_part = parts.values()
    for name in names:
        of = of_global_part if name == "global" or name.endswith(_GLOBAL_PART) else of_clients
        of[name] = name.removesuffix(_GLOBAL_PART)
    return {by: some for by, some in parts.items() if some}


def view_of(key: str) -> str | None:
    """Return the name of the view of a key; None for other keys."""
    return key.removeprefix(_VIEW).partition(":")[0] if key.startswith(_VIEW) else None


def view_column(name: str, when: str, *, with_std: bool = True) -> Column:
    """Return the column of the accuracy in a view, for the evaluations `when`."""
    return Column(_view_key(name, when), name, percent, with_std=with_std)


def csv_name(key: str) -> str:
    """Return the name of a key's column, such as "novel_global_part_best"."""
    return re.sub(r"\W+", "_", key.removeprefix(_VIEW)).lower() if key.startswith(_VIEW) else key


def _view_key(name: str, when: str) -> str:
    return f"{_VIEW}{name}:{when}"


def cells_of(runs: Sequence[dict[str, float]]) -> dict[str, Cell]:
    """Average the numbers that all of `runs` have."""
    keys = [key for key in runs[0] if all(key in numbers for numbers in runs)] if runs else []
    return {key: cell_of([numbers[key] for numbers in runs]) for key in keys}


def cell_of(values: Sequence[float]) -> Cell:
    """Average a number over runs, without rounding errors if all are equal (such as a learning rate)."""
    mean = float(values[0]) if len(set(values)) == 1 else statistics.fmean(values)
    return Cell(mean, statistics.stdev(values) if len(values) > 1 else None)
