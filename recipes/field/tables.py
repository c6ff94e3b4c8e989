"""The tables of a study made by study.sh.

    python -m recipes.field.tables runs/field docs/results/field

For every setting it keeps, in SETTING-clients.csv, a line for each run, row and column: the accuracy of every client in
percent. From these lines alone it makes SETTING.csv: for each row (a method or control, with the prior off or on) and
column its mean, and personal ridge's mean minus it, paired over splits and seeds, with Student's interval over splits
and Holm's p over all rows of the column. Without the first argument, or where it has no runs of a setting, the lines
that are there already are used. It prints the tables of docs/results.md.

    python -m recipes.field.tables runs/demo docs/results/demo.csv

writes only such lines, for one comparison.
"""

import csv
import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedotp.methods import METHODS
from fedotp.runs.tables import SHARE, Difference, Pair, holm, paired

SETTINGS = (
    "mild", "fifty", "severe", "two-classes", "few-shots", "many", "changed", "novel", "vendors", "vendors-labels",
    "office", "office-labels",
    "real-cifar", "real-fifty", "real-sampled", "real-few", "real-many", "real-office", "real-office-labels",
    "real-pacs", "real-pets", "real-caltech",
)  # fmt: skip
COLUMNS = {"changed": ("own", "changed"), "novel": ("local", "base", "novel")}
"""Of settings with more than the accuracy on the sites' own images."""
REFERENCE = ("personal-ridge", "on")
_CONTROLS = {"majority": ("majority", "off"), "zero_shot": ("zeroshot", "off"), "zero_shot_prior": ("zeroshot", "on")}
_VIEWS = {"base": {"changed": "changed", "novel": "base"}, "novel": {"novel": "novel"}}
_FIRST = 7  # columns of the first table
_IN_LOSS = ",federation.prior=1.0,evaluation.prior=1.0"
_WITHOUT = "personal-ridge,evaluation.prior=0.0"


class Line(NamedTuple):
    """What one row scored in one run: the accuracies of the clients, in percent and in their order."""

    method: str
    prior: str
    column: str
    split: int
    seed: int
    clients: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over clients, in percent."""
        return statistics.fmean(self.clients)


def lines(folder: Path, setting: str) -> Iterator[Line]:
    """All that the runs of a setting say, controls once for each split and seed."""
    own = COLUMNS.get(setting, ("own",))[0]
    seen: set[tuple[str, str, int, int]] = set()
    for path in sorted(folder.glob("*/summary.json")):
        *name, split_, seed_ = path.parent.name.split(",")
        if not split_.startswith("split="):
            name, split_ = [*name, split_], "split=0"
        method, split, seed = ",".join(name), int(split_.removeprefix("split=")), int(seed_.removeprefix("seed="))
        if setting in ("vendors", "office", "real-office", "real-pacs"):
            split = seed  # a division by domain is one split: seeds stand for it
        summary = json.loads(path.read_text())
        always = method.endswith(_IN_LOSS) or method == REFERENCE[0]
        found = {(method, "on" if always else "off"): [client["accuracy"] for client in summary["clients"]]}
        controls = summary["controls"]
        if method == _WITHOUT:  # a row of the same method; its controls are in the other's runs
            method, controls = REFERENCE[0], {}
            found = {(method, "off"): found.popitem()[1]}
        elif not always:
            found[method, "on"] = summary["with_prior"]["clients"]
        for control, row in _CONTROLS.items():
            if control in controls and method == REFERENCE[0]:
                found[row] = controls[control]["clients"]
        for control, prior in (("global", "off"), ("global_prior", "on")):
            if control in controls:
                found[f"global part of {method}", prior] = controls[control]["clients"]
        for (row, prior), values in found.items():
            if (row, prior, split, seed) not in seen:
                seen.add((row, prior, split, seed))
                yield Line(row, prior, own, split, seed, tuple(100 * value for value in values))
        for view in summary.get("views", []):
            column = _VIEWS.get(view["view"], {}).get(setting)
            if column and view["model"] == "personal":
                yield Line(method, "on" if always else "off", column, split, seed, (100 * view["accuracy"],))


def rows(found: Sequence[Line]) -> list[dict[str, Any]]:
    """A row for each method or control, prior and column, best first."""
    series: dict[tuple[str, str, str], dict[Pair, float]] = {}
    for line in found:
        series.setdefault((line.column, line.method, line.prior), {})[line.split, line.seed] = line.mean / 100
    made = []
    for column in dict.fromkeys(line.column for line in found):
        here = {key[1:]: runs for key, runs in series.items() if key[0] == column}
        ours = here.get(REFERENCE, {})
        ahead = {key: paired(ours, runs) for key, runs in here.items() if key != REFERENCE}
        tested = {key: each.p for key, each in ahead.items() if each and each.p is not None}
        p = dict(zip(tested, holm(list(tested.values())), strict=True))
        order = sorted(here, key=lambda key: -statistics.fmean(here[key].values()))
        made += [_row(column, key, here[key], ahead.get(key), p.get(key)) for key in order]
    return made


def _row(
    column: str, key: tuple[str, str], runs: dict[Pair, float], ahead: Difference | None, p: float | None
) -> dict[str, Any]:
    word = ""
    if ahead is not None and p is not None:
        word = ("ahead" if ahead.mean > 0 else "behind") if p <= 1 - SHARE else "not significant"
    return {
        "column": column,
        "method": key[0],
        "prior": key[1],
        "runs": len(runs),
        "mean": statistics.fmean(runs.values()),
        "personal_ridge_minus_it": ahead.mean if ahead else None,
        "low": ahead.low if ahead else None,
        "high": ahead.high if ahead else None,
        "p_holm": p,
        "personal_ridge_is": word,
    }


def markdown(folder: Path) -> str:
    """Two tables, a line for each method: its means, prior off / on, marked where they differ from personal ridge's."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    titles = []
    for setting in (each for each in SETTINGS if (folder / f"{each}.csv").exists()):
        with (folder / f"{setting}.csv").open(newline="") as file:
            found = list(csv.DictReader(file))
        for column in dict.fromkeys(row["column"] for row in found):
            title = setting if column in ("own", setting) and setting != "changed" else f"{setting}: {column}"
            titles.append(title)
            for row in found:
                if row["column"] == column and not row["method"].startswith("global part"):
                    mark = {"ahead": "▽", "behind": "▲"}.get(row["personal_ridge_is"], "")
                    cells.setdefault((row["method"], title), {})[row["prior"]] = f"{100 * float(row['mean']):.1f}{mark}"
    methods = dict.fromkeys(method for method, _ in cells)
    return "\n".join(_table(cells, methods, part) for part in (titles[:_FIRST], titles[_FIRST:]))


def _table(cells: dict[tuple[str, str], dict[str, str]], methods: Iterable[str], titles: Sequence[str]) -> str:
    body = [[called(method), *(_shown(cells.get((method, title), {})) for title in titles)] for method in methods]
    return "".join(
        f"| {' | '.join(line)} |\n" for line in [["method", *titles], ["---", *["---:"] * len(titles)], *body]
    )


def _shown(cell: dict[str, str]) -> str:
    """Prior off / on."""
    return "/".join(cell[prior] for prior in ("off", "on") if prior in cell) or "-"


def called(method: str) -> str:
    """A method with its options, as a table names it."""
    name, *options = method.removesuffix(_IN_LOSS).split(",")
    title = METHODS[name].title if name in METHODS else "Majority class"
    return ", ".join([title, *options, *(["prior in the loss"] if method.endswith(_IN_LOSS) else [])])


_ZERO, _FEDOTP = "zeroshot", "fedotp"
PARTS = {
    "the prior alone": ((_ZERO, "on"), (_ZERO, "off")),
    "FedOTP": ((_FEDOTP, "off"), (_ZERO, "off")),
    "FedOTP's local prompt beyond the prior": ((_FEDOTP, "on"), ("global part of fedotp", "on")),
    "personal ridge's own images beyond the prior": (("personal-ridge", "on"), ("global part of personal-ridge", "on")),
}
"""What personalisation is made of: differences of two rows."""


def made_of(folder: Path) -> str:
    """A line for each setting: the differences of `PARTS` in points, with intervals."""
    body = [["setting", *PARTS], ["---", *["---:"] * len(PARTS)]]
    for setting in (each for each in SETTINGS if (folder / f"{each}-clients.csv").exists()):
        found = read(folder / f"{setting}-clients.csv")
        series: dict[tuple[str, str], dict[Pair, float]] = {}
        for line in (each for each in found if each.column == found[0].column):
            series.setdefault((line.method, line.prior), {})[line.split, line.seed] = line.mean
        differences = [paired(series.get(one, {}), series.get(other, {})) for one, other in PARTS.values()]
        body.append([setting, *("-" if each is None else _points(each) for each in differences)])
    return "".join(f"| {' | '.join(line)} |\n" for line in body)


def _points(difference: Difference) -> str:
    if difference.low is None or difference.high is None:
        return f"{difference.mean:+.1f}"
    return f"{difference.mean:+.1f} ±{(difference.high - difference.low) / 2:.1f}"


def read(path: Path) -> list[Line]:
    """The lines of a file that `write` made."""
    with path.open(newline="") as file:
        return [
            Line(r["method"], r["prior"], r["column"], int(r["split"]), int(r["seed"]), _numbers(r["clients"]))
            for r in csv.DictReader(file)
        ]


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(value) for value in text.split())


def _write(path: Path, made: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, made[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(made)


def keep(path: Path, found: Sequence[Line]) -> None:
    """Write the lines."""
    _write(path, [line._asdict() | {"clients": " ".join(f"{value:.6g}" for value in line.clients)} for line in found])


def main() -> None:
    """Write them."""
    *sources, target = (Path(argument) for argument in sys.argv[1:])
    if target.suffix == ".csv":
        keep(target, list(lines(sources[0], "demo")))
        return
    target.mkdir(parents=True, exist_ok=True)
    for setting in SETTINGS:
        kept = target / f"{setting}-clients.csv"
        if sources and (sources[0] / setting).is_dir():
            keep(kept, list(lines(sources[0] / setting, setting)))
        if kept.exists():
            _write(target / f"{setting}.csv", rows(read(kept)))
    print(markdown(target))
    print(made_of(target))


if __name__ == "__main__":
    main()
