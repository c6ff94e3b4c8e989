"""Fill the tables of docs/claims.md.

    python -m recipes.claims.page docs/results/claims docs/claims.md

What stands between <!-- NAME --> and <!-- /NAME --> is replaced by the table of the claim of that name, or by one of
`_OTHERS`; the text around it is the page's own. No number of the study stands in that text.
"""

import argparse
import re
from collections import Counter
from pathlib import Path

from recipes.claims.claims import CLAIMS, PLACE_NAMES, Claim, called, counted, masses, place
from recipes.claims.data import ZERO_SHOT, Results
from recipes.claims.judge import Judged, Series, Word, verdict
from recipes.claims.settings import AVERAGE, BASELINES, CHOOSING, CLASSICAL, FEDOTP, MASSES, SHARED, SHOTS
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
        told = ", ".join(f"{word} {counts[word]}" for word in Word if counts[word]) or "not tested"
        link = f"[{number}](#{claim.name if counts else 'not-tested'})"
        lines.append([link, claim.says, claim.place or "not in the paper", f"**{verdict(judged[claim.name])}**", told])
    return table(["", "claim", "place", "verdict here", "comparisons"], lines).replace("---:", "---")


def told(claim: Claim, judged: list[Judged], results: Results) -> str:
    """The table of a claim, its verdict, and apart from these what was added."""
    text = f"{matrix(judged, claim.scale)}\n\nVerdict: **{verdict(judged)}**."
    if claim.added is None:
        return text
    return f"{text}\n\nAdded with the results, not judged:\n\n{matrix(list(claim.added(results)), claim.scale)}"


def accuracies(results: Results) -> str:
    """What the methods scored, in each setting."""
    run_in = {"classes-shots": (FEDOTP, CLASSICAL, AVERAGE, *BASELINES), "alpha": (FEDOTP, *SHARED)}
    run_in["emoji-shots"] = (FEDOTP, CLASSICAL, AVERAGE, "coop", "promptfl")
    lines = []
    for method in (*run_in["classes-shots"], ZERO_SHOT):
        has = [method in (*run_in[setting], ZERO_SHOT) for setting in PLACE_NAMES]
        means = [
            f"{100 * _mean(place(results, at, method)):.2f}" if it else "-"
            for at, it in zip(PLACE_NAMES, has, strict=True)
        ]
        lines.append([called(method), *means])
    return table(["accuracy %", *PLACE_NAMES.values()], lines)


def by_mass(results: Results) -> str:
    """Accuracy by mass, and less that of classical transport, each interval for itself."""
    found = masses(results)
    means = [f"{100 * _mean(found[mass]):.2f}" for mass in MASSES]
    less = [_difference(found[mass], found[1.0]) for mass in MASSES[:-1]]
    return table(["", *(f"γ = {mass:g}" for mass in MASSES)], [["accuracy %", *means], ["less γ = 1", *less, "-"]])


def by_shots(results: Results) -> str:
    """Unbalanced, classical, averaging, at every number of shots."""
    lines = []
    for data, setting in (("cifar10-mini", "classes-shots"), ("emoji", "emoji-shots")):
        for shots in SHOTS:
            of = {method: results.series(setting, method, shots) for method in (FEDOTP, CLASSICAL, AVERAGE)}
            means = [f"{100 * _mean(each):.2f}" for each in of.values()]
            pairs = ((FEDOTP, CLASSICAL), (CLASSICAL, AVERAGE), (FEDOTP, AVERAGE))
            lines.append([f"{data}, {counted(shots)}", *means, *(_difference(of[one], of[two]) for one, two in pairs)])
    differences = ["unbalanced less classical", "classical less averaging", "unbalanced less averaging"]
    header = ["", "unbalanced %", "classical %", "averaging %", *differences]
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
    """The page with its tables; one that has no place, or two, is refused."""
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
    parser.add_argument("--field", type=Path, default=FIELD, help="the results of recipes/field")
    arguments = parser.parse_args()
    arguments.page.write_text(fill(arguments.page.read_text(), tables(arguments.folder, arguments.field)))


def tables(folder: Path, field: Path) -> dict[str, str]:
    """All tables of the page, by the names of their places."""
    results = Results(folder, field)
    judged = {claim.name: claim.judged(results) for claim in CLAIMS}
    found = {claim.name: told(claim, judged[claim.name], results) for claim in CLAIMS if claim.is_tested}
    return found | {
        "overview": overview(judged),
        "accuracies": accuracies(results),
        "by-shots": by_shots(results),
        "by-mass": by_mass(results),
        "rates": rates(folder / "runs.csv"),
    }


if __name__ == "__main__":
    main()
