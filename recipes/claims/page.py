"""Fill the tables of docs/claims.md.

    python -m recipes.claims.page docs/results/claims docs/claims.md

The text between <!-- NAME --> and <!-- /NAME --> is replaced by the table NAME; the text around it is written by hand
and contains no number of the study. Tables that the page does not show are in FOLDER/tables.csv.
"""

import argparse
import csv
import io
import re
from collections import Counter
from itertools import chain
from pathlib import Path

from recipes.claims.claims import CLAIMS, PLACE_NAMES, called, counted, masses, place
from recipes.claims.data import ZERO_SHOT, Results
from recipes.claims.judge import Judged, Series, Word, verdict
from recipes.claims.settings import AVERAGE, CLASSICAL, FEDOTP, MASSES, SHOTS
from recipes.claims.study import best_rates

from fedotp.runs.tables import Difference, paired

FIELD = Path("docs/results/field-earlier")


def table(header: list[str], lines: list[list[str]]) -> str:
    """Markdown, numbers to the right."""
    ruler = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ruler, *lines))


def matrix(judged: list[Judged], scale: float) -> str:
    """The differences of a claim, a row and a column each."""
    columns = list(dict.fromkeys(each.column for each in judged))
    cells = {(each.row, each.column): _cell(each, scale) for each in judged}
    rows = dict.fromkeys(each.row for each in judged)
    return table(["", *columns], [[row, *(cells.get((row, column), "") for column in columns)] for row in rows])


_MARKS = {Word.AHEAD: " ▲", Word.BEHIND: " ▽", Word.SMALL: " ≈", Word.OPEN: ""}


def _cell(each: Judged, scale: float) -> str:
    half = (each.high - each.low) / 2
    return f"{scale * each.mean:+.2f} ±{scale * half:.2f}{_MARKS[each.word]}"


def overview(judged: dict[str, list[Judged]]) -> str:
    """All tested claims with their verdicts."""
    lines = []
    for number, claim in enumerate(CLAIMS, 1):
        if of := judged[claim.name]:
            lines.append([f"[{number}](#{claim.name})", claim.says, f"**{verdict(of)}**", _counted(of)])
    return table(["", "claim", "verdict here", "comparisons"], lines).replace("---:", "---")


_IN_FIGURES = ("alpha", "shots-ahead")
"""Claims whose differences a figure of the page shows."""
_TOGETHER = {"pathological": ("dirichlet", "vendors"), "transport": ("unbalanced",), "global-part": ("local-part",)}
"""Claims whose differences are in the table of another."""


def _counted(judged: list[Judged]) -> str:
    counts = Counter(each.word for each in judged)
    return ", ".join(f"{word} {counts[word]}" for word in Word if counts[word])


def accuracies(results: Results) -> str:
    """Accuracies in each setting of FedOTP, from which tables show the differences of others, and of zero-shot CLIP."""
    lines = [
        [called(method), *(f"{100 * _mean(place(results, at, method)):.2f}" for at in PLACE_NAMES)]
        for method in (FEDOTP, ZERO_SHOT)
    ]
    return table(["accuracy %", *PLACE_NAMES.values()], lines)


Line = tuple[str, str, str, str, str, str, str]
"""Of tables.csv: table, row, column, mean, low, high, result."""


def lines_of(name: str, judged: list[Judged], scale: float) -> list[Line]:
    """The comparisons of a claim."""
    return [(name, each.row, each.column, *_numbers(each, scale), str(each.word)) for each in judged]


def by_mass(results: Results) -> list[Line]:
    """Accuracy by mass, and the difference to classical transport, intervals uncorrected."""
    found = masses(results)
    means = [_mean_line("by mass", f"γ = {mass:g}", "accuracy %", found[mass]) for mass in MASSES]
    differences = [
        _difference("by mass", f"γ = {mass:g}", "less γ = 1", found[mass], found[1.0]) for mass in MASSES[:-1]
    ]
    return means + differences


def by_shots(results: Results) -> list[Line]:
    """Unbalanced, classical, averaging, at every number of shots, intervals uncorrected."""
    names = {FEDOTP: "unbalanced", CLASSICAL: "classical", AVERAGE: "averaging"}
    lines = []
    for data, setting in (("cifar10-mini", "classes-shots"), ("emoji", "emoji-shots")):
        for shots in SHOTS:
            row = f"{data}, {counted(shots)}"
            of = {method: results.series(setting, method, shots) for method in names}
            lines += [_mean_line("by shots", row, f"{names[method]} %", of[method]) for method in names]
            for one, two in ((FEDOTP, CLASSICAL), (CLASSICAL, AVERAGE), (FEDOTP, AVERAGE)):
                lines.append(_difference("by shots", row, f"{names[one]} less {names[two]}", of[one], of[two]))
    return lines


def rates(runs: Path) -> list[Line]:
    """The learning rates that were chosen."""
    return [
        ("learning rates", called(method), name.removeprefix("rates-"), f"{rate:g}", "", "", "")
        for (name, method), rate in sorted(best_rates(runs).items())
    ]


def _mean_line(name: str, row: str, column: str, series: Series) -> Line:
    return name, row, column, f"{100 * _mean(series):.2f}", "", "", ""


def _difference(name: str, row: str, column: str, ours: Series, theirs: Series) -> Line:
    found = paired(ours, theirs)
    assert found is not None
    return name, row, column, *_numbers(found, 100), ""


def _numbers(of: Judged | Difference, scale: float) -> tuple[str, str, str]:
    assert of.low is not None
    assert of.high is not None
    return f"{scale * of.mean:+.2f}", f"{scale * of.low:+.2f}", f"{scale * of.high:+.2f}"


def _mean(series: Series) -> float:
    return sum(series.values()) / len(series)


def fill(page: str, tables: dict[str, str]) -> str:
    """The page with its tables; every table must have exactly one place."""
    for name, text in tables.items():
        parts = re.split(rf"(?<=<!-- {name} -->\n)(?:.*\n)??(?=<!-- /{name} -->)", page, flags=re.DOTALL)
        if len(parts) != 2:
            raise ValueError(f"the page must have <!-- {name} --> and <!-- /{name} --> once")
        page = f"{text}\n".join(parts)
    return page


def main() -> None:
    """Fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--field", type=Path, default=FIELD, help="the results of an earlier study of all methods")
    arguments = parser.parse_args()
    arguments.page.write_text(fill(arguments.page.read_text(), tables(arguments.folder, arguments.field)))
    (arguments.folder / "tables.csv").write_text(all_lines(arguments.folder, arguments.field))


def tables(folder: Path, field: Path) -> dict[str, str]:
    """All tables of the page, by the names of their places."""
    results = Results(folder, field)
    judged = {claim.name: claim.judged(results) for claim in CLAIMS}
    elsewhere = {*_IN_FIGURES, *chain.from_iterable(_TOGETHER.values())}
    found = {
        claim.name: matrix(
            [each for name in (claim.name, *_TOGETHER.get(claim.name, ())) for each in judged[name]], claim.scale
        )
        for claim in CLAIMS
        if claim.is_tested and claim.name not in elsewhere
    }
    return found | {"overview": overview(judged), "accuracies": accuracies(results)}


def all_lines(folder: Path, field: Path) -> str:
    """tables.csv: all comparisons, also those that were not judged, and the learning rates."""
    results = Results(folder, field)
    lines = [line for claim in CLAIMS for line in lines_of(claim.name, claim.judged(results), claim.scale)]
    for claim in CLAIMS:
        if claim.added is not None:
            lines += lines_of(f"{claim.name}, not judged", list(claim.added(results)), claim.scale)
    lines += [*by_shots(results), *by_mass(results), *rates(folder / "runs.csv")]
    return as_csv(lines)


def as_csv(lines: list[Line]) -> str:
    """The lines below their header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("table", "row", "column", "mean", "low", "high", "result"), *lines])
    return text.getvalue()


if __name__ == "__main__":
    main()
