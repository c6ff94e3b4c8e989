"""Fill the tables of docs/attacks.md.

    python -m recipes.attacks.page docs/results/attacks.csv docs/attacks.md

The text between <!-- NAME --> and <!-- /NAME --> is replaced by the table NAME; the text around it is written by hand.
Results with rules are in attacks-tables.csv, in the folder of the runs.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from recipes.attacks.judge import Results, Series, Told, interval, judge, less
from recipes.attacks.settings import AIMED, ATTACKS, METHODS, RULES, SHARES
from recipes.claims.page import Line, as_csv, fill, table

TITLES = {"promptfl": "PromptFL", "fedotp": "FedOTP"}
_OTHERS = RULES[1:]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _plain(series: Series) -> str:
    mean, half = interval(series)
    return f"{100 * mean:.1f} ± {100 * half:.1f}"


def _told(told: Told) -> str:
    text = f"{100 * told.mean:+.1f} ±{50 * (told.high - told.low):.1f}"
    return f"**{text}**" if told.apart else text


def price(results: Results) -> str:
    """Without an attack: accuracy under the average, and each rule less it."""
    lines = []
    for method in METHODS:
        average = results.accuracy(method, "none", 0.0, "average")
        told = judge([(results.accuracy(method, "none", 0.0, rule), average) for rule in _OTHERS])
        lines.append([TITLES[method], _plain(average), *map(_told, told)])
    return table(["no attack", "average %", *_OTHERS], lines)


def _harmed(results: Results, method: str) -> dict[tuple[str, float], Told]:
    """Under the average: what attacks cost, by attack and share, one family."""
    cells = [(attack, share) for attack in ATTACKS for share in SHARES]
    pairs = [(results.accuracy(method, *cell, "average"), results.unharmed(method, *cell)) for cell in cells]
    return dict(zip(cells, judge(pairs), strict=True))


def harm(results: Results) -> str:
    """Under the average: what attacks cost."""
    rows = []
    for method in METHODS:
        found = _harmed(results, method)
        rows += [
            [f"{TITLES[method]}, {attack}", *(_told(found[attack, share]) for share in SHARES)] for attack in ATTACKS
        ]
    return table(["attackers", *map(_percent, SHARES)], rows)


def harm_lines(results: Results) -> list[Line]:
    """The same with bounds."""
    return [
        (f"cost, {TITLES[method]}", attack, _percent(share), *_numbers(each), "significant" if each.apart else "")
        for method in METHODS
        for (attack, share), each in _harmed(results, method).items()
    ]


def private(results: Results) -> list[Line]:
    """What attacks cost FedOTP less what they cost PromptFL."""

    def cost(method: str, attack: str, share: float) -> Series:
        return less(results.accuracy(method, attack, share, "average"), results.unharmed(method, attack, share))

    cells = [(attack, share) for attack in ATTACKS for share in SHARES]
    found = judge([(cost("fedotp", *cell), cost("promptfl", *cell)) for cell in cells])
    return [
        ("cost, FedOTP less PromptFL", attack, _percent(share), *_numbers(each), "significant" if each.apart else "")
        for (attack, share), each in zip(cells, found, strict=True)
    ]


def _numbers(told: Told) -> tuple[str, str, str]:
    return f"{100 * told.mean:+.1f}", f"{100 * told.low:+.1f}", f"{100 * told.high:+.1f}"


def by_rule(results: Results) -> list[Line]:
    """Accuracy of honest clients and success of attacks that have one, under every attack, share and rule."""
    lines = []
    for method in METHODS:
        lines += _by_rule(results.accuracy, method, tuple(ATTACKS), "accuracy %", higher=True)
        lines += _by_rule(results.success, method, AIMED, "attack success %", higher=False)
    return lines


def _by_rule(
    number: Callable[[str, str, float, str], Series], method: str, attacks: tuple[str, ...], name: str, *, higher: bool
) -> list[Line]:
    """One family a share; the result is "better" or "worse" than the average."""
    lines = []
    for share in SHARES:
        cells = [(attack, rule) for attack in attacks for rule in _OTHERS]
        pairs = [(number(method, a, share, rule), number(method, a, share, "average")) for a, rule in cells]
        words = {cell: _word(each, higher=higher) for cell, each in zip(cells, judge(pairs), strict=True)}
        for attack in attacks:
            for rule in RULES:
                mean, half = (100 * x for x in interval(number(method, attack, share, rule)))
                numbers = (f"{x:.1f}" for x in (mean, mean - half, mean + half))
                row = f"{TITLES[method]}, {attack}, {_percent(share)}"
                lines.append((name, row, rule, *numbers, words.get((attack, rule), "")))
    return lines


def _word(told: Told, *, higher: bool) -> str:
    if not told.apart:
        return ""
    return "better" if (told.mean > 0) == higher else "worse"


def no_attack(results: Results) -> str:
    """How often images of other classes get the target class without an attack."""
    return "; ".join(
        f"{TITLES[method]}, {attack} {_plain(results.success(method, attack, 0.0, 'average'))}"
        for method in METHODS
        for attack in AIMED
    )


def short(results: Results) -> str:
    """What the rules do, counted."""
    rows = {rule: [f"`{rule}`"] for rule in _OTHERS}
    cells = [(attack, share) for attack in ATTACKS for share in SHARES]
    for method in METHODS:
        unharmed = {cell: results.unharmed(method, *cell) for cell in cells}
        for rule in _OTHERS:
            found = [each for share in SHARES for each in judge(_against_average(results, method, rule, share))]
            lost = [interval(less(results.accuracy(method, *cell, rule), unharmed[cell]))[0] for cell in cells]
            ahead, behind = (sum(each.apart and sign * each.mean > 0 for each in found) for sign in (1, -1))
            rows[rule] += [str(ahead), str(behind), f"{-100 * min(lost):.1f}"]
    columns = ("ahead", "behind", "worst")
    header = [f"of {len(cells)} attacks", *(f"{TITLES[method]}: {name}" for method in METHODS for name in columns)]
    return table(header, list(rows.values()))


def _against_average(results: Results, method: str, rule: str, share: float) -> list[tuple[Series, Series]]:
    return [tuple(results.accuracy(method, attack, share, each) for each in (rule, "average")) for attack in ATTACKS]


def main() -> None:
    """Fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("page", type=Path)
    arguments = parser.parse_args()
    results = Results(arguments.runs)
    tables = {
        "short": short(results),
        "price": price(results),
        "harm": harm(results),
        "no-attack": f"Without an attack, in percent: {no_attack(results)}.",
    }
    arguments.page.write_text(fill(arguments.page.read_text(), tables))
    lines = [*by_rule(results), *harm_lines(results), *private(results)]
    (arguments.runs.parent / "attacks-tables.csv").write_text(as_csv(lines))


if __name__ == "__main__":
    main()
