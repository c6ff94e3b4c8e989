"""The tables of a study made by study.sh.

    python -m recipes.field.tables runs/field docs/results/field
    python -m recipes.field.tables runs/demo docs/results/demo.csv

For every setting a CSV file: the numbers of each method, means over its runs, and how far FedOTP is ahead or behind in
each, paired over splits and seeds. Each vendor left out is a split. Beside them, in SETTING-clients.csv, a line for
each run and view: how many of its test images every client has right, from which means and worst tenths follow. The
second command writes only that, for one comparison. The first one also prints the table of docs/results.md.
"""

import csv
import json
import statistics
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedotp.methods import METHODS
from fedotp.runs.tables import SHARE, Difference, Pair, holm, paired

Numbers = dict[str, float]
_REFERENCE = "fedotp"


def _plain(summary: dict[str, Any]) -> Numbers:
    """Accuracy on the clients' own images."""
    return {
        "accuracy": summary["final"]["accuracy"],
        "worst decile": summary["final"]["accuracy_worst_decile"],
        "best round": summary["best"]["accuracy"],
        "last five": summary["last_five"]["accuracy"] if "last_five" in summary else summary["final"]["accuracy"],
    }


def _novel(summary: dict[str, Any]) -> Numbers:
    """Local, base, novel and what papers make of them; the global part's beside them. After the last round."""
    both = summary.get("base_to_novel", {})
    words = {"personal": "", "global": "global part: "}
    return {
        f"{words[model]}{name}": series["last"]
        for model, numbers in both.items()
        for name, series in numbers.items()
        if model == "personal" or name in ("base", "novel")
    }


def _left_out(summary: dict[str, Any]) -> Numbers:
    """The other vendors, and the one left out before and after it joined."""
    views = {(view["view"], view["model"]): view["accuracy"] for view in summary.get("views", [])}
    before = views.get(("before joining", "global"), views.get(("before joining", "personal")))
    found = {"others": summary["final"]["accuracy"], "before": before, "after": summary["joined"]["accuracy"]}
    return {name: value for name, value in found.items() if value is not None}


SETTINGS: dict[str, tuple[Callable[[dict[str, Any]], Numbers], tuple[str, ...]]] = {
    "fifty": (_plain, ("accuracy",)),
    "two-classes": (_plain, ("accuracy",)),
    "vendors": (_plain, ("accuracy",)),
    "novel": (_novel, ("local", "base", "novel")),
    "left-out": (_left_out, ("others", "before", "after")),
}
"""For each setting its numbers, and those of them in the Markdown table."""


def _runs(folder: Path) -> Iterator[tuple[str, Pair, Path]]:
    """The complete runs below a folder: method, as it was asked for, split and seed, and where it is."""
    parts = [folder] if any(folder.glob("*/summary.json")) else sorted(folder.iterdir())
    for place, part in enumerate(parts):
        for path in sorted(summary.parent for summary in part.glob("*/summary.json")):
            config = tomllib.loads((path / "config.toml").read_text())
            split = config["partition"]["seed"] if len(parts) == 1 else place
            yield path.name.split(",split=")[0].split(",seed=")[0], (split, config["seed"]), path


def read(folder: Path, numbers: Callable[[dict[str, Any]], Numbers]) -> dict[str, dict[Pair, Numbers]]:
    """By method the numbers of its runs by split and seed."""
    found: dict[str, dict[Pair, Numbers]] = {}
    for method, pair, path in _runs(folder):
        found.setdefault(method, {})[pair] = numbers(json.loads((path / "summary.json").read_text()))
    return found


def clients(folder: Path) -> list[dict[str, Any]]:
    """A row for each run and view: the images right and tested of every client after the last round."""
    made = []
    for method, (split, seed), path in _runs(folder):
        last: dict[str, dict[str, Any]] = {}
        for record in map(json.loads, (path / "metrics.jsonl").read_text().splitlines()):
            if record["kind"] in ("evaluation", "view"):
                last[f"{record['view']} {record['model']}" if "view" in record else "own"] = record
        for view, record in last.items():
            tested = zip(record["client_accuracy"], record["n"], strict=True)
            right = " ".join(f"{round(share * n)}/{n}" for share, n in tested)
            made.append({"method": method, "split": split, "seed": seed, "view": view, "clients": right})
    return made


def recomputed(right: str) -> Numbers:
    """Mean accuracy over clients and over the worst tenth of them, of a cell of the column `clients`."""
    shares = sorted(int(one) / int(of) for one, of in (each.split("/") for each in right.split()))
    worst = shares[: max(1, len(shares) // 10)]
    return {"accuracy": statistics.fmean(shares), "worst decile": statistics.fmean(worst)}


def rows(found: dict[str, dict[Pair, Numbers]]) -> list[dict[str, Any]]:
    """A row for each method and number, in the order of the mean of the first number."""
    names = list(dict.fromkeys(name for runs in found.values() for run in runs.values() for name in run))
    series = {
        (method, name): {pair: run[name] for pair, run in runs.items() if name in run}
        for method, runs in found.items()
        for name in names
    }
    against = {
        key: paired(series[_REFERENCE, key[1]], own)
        for key, own in series.items()
        if key[0] != _REFERENCE and _REFERENCE in found
    }
    together: dict[tuple[str, str], float] = {}
    for name in names:
        tested = {key: found.p for key, found in against.items() if found and found.p is not None and key[1] == name}
        together |= dict(zip(tested, holm(list(tested.values())), strict=True))
    order = sorted(found, key=lambda method: -statistics.fmean(series[method, names[0]].values()))
    return [
        _row(method, name, series[method, name], against.get((method, name)), together.get((method, name)))
        for method in order
        for name in names
        if series[method, name]
    ]


def _row(method: str, name: str, own: dict[Pair, float], ahead: Difference | None, p: float | None) -> dict[str, Any]:
    values = list(own.values())
    word = ""
    if ahead is not None and p is not None:
        word = ("ahead" if ahead.mean > 0 else "behind") if p <= 1 - SHARE else "not told apart"
    return {
        "method": method,
        "number": name,
        "runs": len(values),
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "fedotp_minus_it": ahead.mean if ahead else None,
        "low": ahead.low if ahead else None,
        "high": ahead.high if ahead else None,
        "p_holm": p,
        "fedotp_is": word,
    }


def markdown(folder: Path) -> str:
    """Of all CSV files a line for each method: means in percent, and which differ significantly from FedOTP's."""
    names, cells = [], {}
    for setting, (_, shown) in SETTINGS.items():
        with (folder / f"{setting}.csv").open(newline="") as file:
            found = [row for row in csv.DictReader(file) if row["number"] in shown]
        for name in shown:
            names.append(setting if len(shown) == 1 else f"{setting}: {name}")
            of = {_called(row["method"]): row for row in found if row["number"] == name}
            cells |= {(method, names[-1]): _cell(row) for method, row in of.items()}
    methods = dict.fromkeys(method for method, _ in cells)
    lines = [["method", *names], ["---", *["---:"] * len(names)]]
    lines += [[method, *(cells.get((method, name), "-") for name in names)] for method in methods]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(row: dict[str, str]) -> str:
    return f"{100 * float(row['mean']):.2f}{ {'ahead': ' ▽', 'behind': ' ▲'}.get(row['fedotp_is'], '') }"


def _called(method: str) -> str:
    """A method with its options, without its learning rate."""
    name, *options = method.split(",")
    shown = [option for option in options if not option.startswith("optimizer.")]
    return ", ".join([METHODS[name].title, *shown])


def main() -> None:
    """Write them."""
    source, target = (Path(argument) for argument in sys.argv[1:])
    if target.suffix == ".csv":
        _write(target, clients(source))
        return
    target.mkdir(parents=True, exist_ok=True)
    for setting, (numbers, _) in SETTINGS.items():
        if not (source / setting).is_dir():
            continue
        made = rows(read(source / setting, numbers))
        _write(target / f"{setting}.csv", made)
        _write(target / f"{setting}-clients.csv", clients(source / setting))
    if all((target / f"{setting}.csv").exists() for setting in SETTINGS):
        print(markdown(target))


def _write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
