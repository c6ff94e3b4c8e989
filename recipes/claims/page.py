"""Fill the tables of docs/claims.md.

    python -m recipes.claims.page docs/results/claims docs/claims.md

What stands between <!-- NAME --> and <!-- /NAME --> is replaced by the table of the claim of that name, or by one of
`_OTHERS`; the text around it is the page's own. No number of the study stands in that text.
"""

import argparse
import re
from collections import Counter
from pathlib import Path

from recipes.claims.claims import CLAIMS, PLACE_NAMES, Claim, at_mass, called, place
from recipes.claims.data import ZERO_SHOT, Results
from recipes.claims.judge import Judged, Series, Word, verdict
from recipes.claims.settings import AVERAGE, BASELINES, CHOOSING, CLASSICAL, FEDOTP, MASSES, SHOTS
from recipes.claims.study import best_rates

from fedotp.runs import paired

FIELD = Path("docs/results/field")


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


def _cell(each: Judged, scale: float) -> str:
    word = "" if each.word is Word.OPEN else f" **{each.word}**"
    return f"{_interval(each.mean, each.low, each.high, scale)}{word}"


def _interval(mean: float, low: float, high: float, scale: float = 100) -> str:
    return f"{scale * mean:+.2f} ({scale * low:+.2f} to {scale * high:+.2f})"


def overview(judged: dict[str, list[Judged]]) -> str:
    """All claims with their verdicts."""
    lines = []
    for number, claim in enumerate(CLAIMS, 1):
        counts = Counter(each.word for each in judged[claim.name])
        told = ", ".join(f"{word} {counts[word]}" for word in Word if counts[word])
        lines.append(
            [
                f"[{number}](#{claim.name})",
                claim.says,
                claim.place or "not in the paper",
                f"**{verdict(judged[claim.name])}**",
                told,
            ]
        )
    return table(["", "claim", "place", "verdict here", "comparisons"], lines).replace("---:", "---")


def told(claim: Claim, judged: list[Judged]) -> str:
    """The table of a claim, and its verdict."""
    return f"{matrix(judged, claim.scale)}\n\nVerdict: **{verdict(judged)}**."


def accuracies(results: Results) -> str:
    """What the methods scored, in each setting."""
    methods = (FEDOTP, CLASSICAL, AVERAGE, *BASELINES, ZERO_SHOT)
    lines = []
    for method in methods:
        line = [called(method)]
        for setting in PLACE_NAMES:
            try:
                line.append(f"{100 * _mean(place(results, setting, method)):.2f}")
            except KeyError:  # not run there
                line.append("-")
        lines.append(line)
    return table(["accuracy %", *PLACE_NAMES.values()], lines)


def best_of_six(results: Results) -> str:
    """What choosing the mass on the test images makes of the comparison with classical transport."""
    lines = []
    for where, setting, values in (("emoji", "emoji-shots", SHOTS), ("cifar10-mini", "classes", (2, 8))):
        for shots in values:
            by_mass = {mass: _at(results, setting, mass, shots) for mass in MASSES}
            best = max(MASSES, key=lambda mass: _mean(by_mass[mass]))
            lines.append(
                [
                    f"{where}, {shots} shots",
                    *(f"{100 * _mean(by_mass[mass]):.2f}" for mass in MASSES),
                    f"{best:g}",
                    _difference(by_mass[best], by_mass[1.0]),
                    _difference(by_mass[0.8], by_mass[1.0]),
                ]
            )
    header = ["", *(f"γ {mass:g}" for mass in MASSES), "best γ", "best less γ 1", "0.8 less γ 1"]
    return table(header, lines)


def _at(results: Results, setting: str, mass: float, shots: int) -> Series:
    if setting == "classes":
        setting = "classes-shots" if mass in (0.8, 1.0) else "classes-mass"
    return results.series(setting, at_mass(mass), shots)


def by_shots(results: Results) -> str:
    """Unbalanced, classical, averaging, at every number of shots."""
    lines = []
    for data, setting in (("cifar10-mini", "classes-shots"), ("emoji", "emoji-shots")):
        for shots in SHOTS:
            of = {method: results.series(setting, method, shots) for method in (FEDOTP, CLASSICAL, AVERAGE)}
            means = [f"{100 * _mean(each):.2f}" for each in of.values()]
            differences = [_difference(of[FEDOTP], of[CLASSICAL]), _difference(of[CLASSICAL], of[AVERAGE])]
            lines.append([f"{data}, {shots} shots", *means, *differences])
    header = ["", "unbalanced", "classical", "averaging", "unbalanced less classical", "classical less averaging"]
    return table(header, lines)


def rates(runs: Path) -> str:
    """The learning rates that were chosen."""
    chosen = best_rates(runs)
    methods = (FEDOTP, CLASSICAL, AVERAGE, *BASELINES)
    names = [name.removeprefix("rates-") for name in CHOOSING]
    lines = [
        [called(method), *(f"{chosen[name, method]:g}" if (name, method) in chosen else "-" for name in CHOOSING)]
        for method in methods
    ]
    return table(["learning rate", *names], lines)


def _difference(ours: Series, theirs: Series) -> str:
    found = paired(ours, theirs)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return _interval(found.mean, found.low, found.high)


def _mean(series: Series) -> float:
    return sum(series.values()) / len(series)


def fill(page: str, tables: dict[str, str]) -> str:
    """The page with its tables; a place without a table, or a table without a place, is refused."""
    for name, text in tables.items():
        place = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->", re.DOTALL)
        if len(place.findall(page)) != 1:
            raise ValueError(f"the page must have <!-- {name} --> and <!-- /{name} --> once")
        page = place.sub(lambda _, name=name, text=text: f"<!-- {name} -->\n{text}\n<!-- /{name} -->", page)
    return page


def main() -> None:
    """Fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("--field", type=Path, default=FIELD, help="the results of recipes/field")
    arguments = parser.parse_args()
    results = Results(arguments.folder, arguments.field)
    judged = {claim.name: claim.judged(results) for claim in CLAIMS}
    tables = {claim.name: told(claim, judged[claim.name]) for claim in CLAIMS}
    tables |= {
        "overview": overview(judged),
        "accuracies": accuracies(results),
        "by-shots": by_shots(results),
        "best-of-six": best_of_six(results),
        "rates": rates(arguments.folder / "runs.csv"),
    }
    arguments.page.write_text(fill(arguments.page.read_text(), tables))


if __name__ == "__main__":
    main()
