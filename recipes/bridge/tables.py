"""The page docs/reproduction.md, with what docs/results/bridge.csv says in its places; and all effects as a file.

    python -m recipes.bridge.tables

`page.md` beside this file is the page; {{some/half}} in it stands for what the change "half" of the setting "some"
(`settings.py`) is worth: its accuracy less that of what it is compared with, in points, paired over splits and seeds,
with its 95 % interval, once all runs are there; bold where the two are told apart when all comparisons are allowed for
(Holm). {{mean some/half}} is its mean accuracy, {{last five some/half}} the same difference of means of the last five
evaluations, {{reported some/ours}} what the mean of the last five is above the last. What was not run is said to be so.
"""

import csv
import re
import statistics
from pathlib import Path
from typing import NamedTuple

from recipes.bridge.settings import SETTINGS

from fedotp.runs.tables import SHARE, Difference, Pair, holm, paired

ROOT = Path(__file__).parents[2]
NUMBERS = ROOT / "docs" / "results" / "bridge.csv"
EFFECTS = ROOT / "docs" / "results" / "bridge-effects.csv"
PAGE = ROOT / "docs" / "reproduction.md"
TEMPLATE = Path(__file__).with_name("page.md")
NOT_RUN = "not run"
PAIRS = 6  # with fewer of them an effect is not told
ALL_PAIRS = 12  # with fewer, of one seed on each split, it is marked
MARK = " °"
FIXED = "split2023/fixed"
_PLACE = re.compile(r"\{\{(?:(mean|last five|reported) )?([\w/]+)\}\}")

Series = dict[Pair, float]


class Numbers(NamedTuple):
    """Of each setting/change, by split and seed: the last accuracy and the mean of the last five."""

    accuracy: dict[str, Series]
    last_five: dict[str, Series]


def read(path: Path = NUMBERS) -> Numbers:
    """What was run; nothing where there is no file yet."""
    numbers = Numbers({}, {})
    if path.is_file():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                for column, found in numbers._asdict().items():
                    series = found.setdefault(f"{row['setting']}/{row['change']}", {})
                    series[int(row["split"]), int(row["seed"])] = float(row[column])
    return numbers


def effect(found: dict[str, Series], name: str) -> Difference | None:
    """What a change is worth; None where not all of its runs are there."""
    own, other = found.get(name, {}), found.get(_compared()[name], {})
    if name == FIXED:  # one split, whose seeds stand beside those of every split of the other setting
        of_seed = {seed: value for (_, seed), value in own.items()}
        own = {pair: of_seed[pair[1]] for pair in other if pair[1] in of_seed}
    difference = paired(own, other)
    return difference if difference is not None and difference.pairs >= PAIRS else None


def adjusted(found: dict[str, Series]) -> dict[str, float]:
    """Holm's p of every change that was run, all comparisons of the study allowed for."""
    effects = {name: effect(found, name) for name, against in _compared().items() if name != against}
    p = {name: one.p for name, one in effects.items() if one is not None and one.p is not None}
    return dict(zip(p, holm(list(p.values())), strict=True))


def shown(difference: Difference | None, *, told_apart: bool = False) -> str:
    """In points, with the interval; bold where the two are told apart."""
    if difference is None or difference.low is None or difference.high is None:
        return NOT_RUN
    text = f"{_points(difference.mean)} ±{50 * (difference.high - difference.low):.2f}"
    text = f"**{text}**" if told_apart else text
    return text if difference.pairs >= ALL_PAIRS else text + MARK


def _points(share: float) -> str:
    """A difference of shares in points; one that rounds to nothing has no sign."""
    text = f"{100 * share:+.2f}"
    return text.removeprefix("-").removeprefix("+") if float(text) == 0 else text.replace("-", "−")


def filled(template: str, numbers: Numbers) -> str:
    """The page."""
    p = {kind: adjusted(found) for kind, found in numbers._asdict().items()}

    def place(match: re.Match[str]) -> str:
        kind, name = match.groups()
        if kind == "mean":
            values = numbers.accuracy.get(name, {}).values()
            return f"{100 * statistics.fmean(values):.2f}" if values else NOT_RUN
        if kind == "reported":
            return shown(paired(numbers.last_five.get(name, {}), numbers.accuracy.get(name, {})))
        number = "last_five" if kind else "accuracy"
        told_apart = p[number].get(name, 1.0) <= 1 - SHARE
        return shown(effect(numbers._asdict()[number], name), told_apart=told_apart)

    return _PLACE.sub(place, template)


def _compared() -> dict[str, str]:
    """Every change, and what it is compared with."""
    changes = {f"{name}/{change}": what for name, it in SETTINGS.items() for change, what in it.changes.items()}
    return {name: f"{name.split('/')[0]}/{what.against}" for name, what in changes.items()} | {FIXED: "classes/ours"}


def main() -> None:
    """Write both files."""
    numbers = read()
    PAGE.write_text(filled(TEMPLATE.read_text(), numbers))
    if not numbers.accuracy:
        return
    with EFFECTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["change", "against", "number", "mean", "low", "high", "p", "p_holm", "pairs", "groups"])
        p = {number: adjusted(found) for number, found in numbers._asdict().items()}
        for name, against in _compared().items():
            for number, found in numbers._asdict().items():
                if name != against and (one := effect(found, name)) is not None:
                    values = [one.mean, one.low, one.high, one.p, p[number].get(name)]
                    texts = ["" if value is None else f"{value:.6f}" for value in values]
                    writer.writerow([name, against, number, *texts, one.pairs, one.groups])


if __name__ == "__main__":
    main()
