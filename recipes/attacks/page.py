"""Fill the tables of docs/attacks.md.

    python -m recipes.attacks.page docs/results/attacks.csv docs/attacks.md

What stands between <!-- NAME --> and <!-- /NAME --> is replaced; the text around it is the page's own.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

from recipes.attacks.judge import Results, Series, Told, interval, judge, less
from recipes.attacks.settings import AIMED, ATTACKS, METHODS, RULES, SHARES
from recipes.claims.page import fill, table

TITLES = {"promptfl": "PromptFL", "fedotp": "FedOTP"}
_OTHERS = RULES[1:]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _plain(series: Series) -> str:
    mean, half = interval(series)
    return f"{100 * mean:.1f} ± {100 * half:.1f}"


def _told(told: Told) -> str:
    text = f"{100 * told.mean:+.1f} ({100 * told.low:+.1f} to {100 * told.high:+.1f})"
    return f"**{text}**" if told.apart else text


def price(results: Results) -> str:
    """Without an attack: accuracy under the average, and each rule less it."""
    lines = []
    for method in METHODS:
        average = results.accuracy(method, "none", 0.0, "average")
        told = judge([(results.accuracy(method, "none", 0.0, rule), average) for rule in _OTHERS])
        lines.append([TITLES[method], _plain(average), *map(_told, told)])
    return table(["no attack", "average %", *_OTHERS], lines)


def harm(results: Results) -> str:
    """Under the average: what attacks cost."""

    def pair(method: str, attack: str, share: float) -> tuple[Series, Series]:
        return results.accuracy(method, attack, share, "average"), results.unharmed(method, attack, share)

    return "\n\n".join(_matrix(TITLES[method], lambda a, s, m=method: pair(m, a, s)) for method in METHODS)


def private(results: Results) -> str:
    """What attacks cost FedOTP less what they cost PromptFL."""

    def cost(method: str, attack: str, share: float) -> Series:
        return less(results.accuracy(method, attack, share, "average"), results.unharmed(method, attack, share))

    return _matrix("FedOTP less PromptFL", lambda a, s: (cost("fedotp", a, s), cost("promptfl", a, s)))


def _matrix(title: str, pair: Callable[[str, float], tuple[Series, Series]]) -> str:
    """Differences by attack and share, one family."""
    cells = [(attack, share) for attack in ATTACKS for share in SHARES]
    told = dict(zip(cells, judge([pair(*cell) for cell in cells]), strict=True))
    lines = [[attack, *(_told(told[attack, share]) for share in SHARES)] for attack in ATTACKS]
    return table([title, *map(_percent, SHARES)], lines)


def accuracies(results: Results, method: str) -> str:
    """The accuracy of honest clients under every attack and rule."""
    return _by_rule(results.accuracy, method, tuple(ATTACKS), higher=True)


def successes(results: Results, method: str) -> str:
    """The success of attacks that have one, under every rule, and what passes for it without an attack."""
    without = {attack: _plain(results.success(method, attack, 0.0, "average")) for attack in AIMED}
    text = "; ".join(f"{attack} {share}" for attack, share in without.items())
    return f"{_by_rule(results.success, method, AIMED, higher=False)}\n\nWithout an attack, in percent: {text}."


def _by_rule(
    number: Callable[[str, str, float, str], Series], method: str, attacks: tuple[str, ...], *, higher: bool
) -> str:
    lines = {}
    for share in SHARES:
        cells = [(attack, rule) for attack in attacks for rule in _OTHERS]
        pairs = [(number(method, a, share, rule), number(method, a, share, "average")) for a, rule in cells]
        told = dict(zip(cells, judge(pairs), strict=True))
        for attack in attacks:
            texts = [_plain(number(method, attack, share, rule)) for rule in RULES]
            marks = ["", *(_mark(told[attack, rule], higher=higher) for rule in _OTHERS)]
            lines[attack, share] = [f"{text}{mark}" for text, mark in zip(texts, marks, strict=True)]
    rows = [[f"{attack}, {_percent(share)}", *lines[attack, share]] for attack in attacks for share in SHARES]
    return table([f"{TITLES[method]} %", *RULES], rows)


def _mark(told: Told, *, higher: bool) -> str:
    if not told.apart:
        return ""
    return " ▲" if (told.mean > 0) == higher else " ▽"


def short(results: Results) -> str:
    """What the tables say, counted."""
    lines = []
    cells = [(attack, share) for attack in ATTACKS for share in SHARES]
    for method in METHODS:
        unharmed = {cell: results.unharmed(method, *cell) for cell in cells}
        harmed = judge([(results.accuracy(method, *cell, "average"), unharmed[cell]) for cell in cells])
        worst, (attack, share) = min(zip(harmed, cells, strict=True), key=lambda each: each[0].mean)
        lines.append(
            f"- **{TITLES[method]} without a rule**: {sum(each.apart and each.mean < 0 for each in harmed)} of "
            f"{len(cells)} attacks cost accuracy significantly; the worst, {attack} from "
            f"{_percent(share)}, costs {-100 * worst.mean:.1f} points."
        )
        for rule in _OTHERS:
            told = [each for share in SHARES for each in judge(_against_average(results, method, rule, share))]
            lost = [interval(less(results.accuracy(method, *cell, rule), unharmed[cell]))[0] for cell in cells]
            lines.append(
                f"    - `{rule}`: ahead of the average under {sum(each.apart and each.mean > 0 for each in told)} of "
                f"{len(cells)}, behind it under {sum(each.apart and each.mean < 0 for each in told)}; at worst "
                f"{-100 * min(lost):.1f} points below no attack."
            )
    return "\n".join(lines)


def _against_average(results: Results, method: str, rule: str, share: float) -> list[tuple[Series, Series]]:
    return [tuple(results.accuracy(method, attack, share, each) for each in (rule, "average")) for attack in ATTACKS]


def main() -> None:
    """Fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("page", type=Path)
    arguments = parser.parse_args()
    results = Results(arguments.runs)
    tables = {"short": short(results), "price": price(results), "harm": harm(results), "private": private(results)}
    for method in METHODS:
        tables[f"accuracy-{method}"] = accuracies(results, method)
        tables[f"success-{method}"] = successes(results, method)
    arguments.page.write_text(fill(arguments.page.read_text(), tables))


if __name__ == "__main__":
    main()
