"""What each site contributed, as a table."""

from typing import Any

from rich.console import Console

from fedotp.cli.show import cell, listing

_ONE, _ALL, _INTERVAL, _OTHERS = "leave one out", "Shapley", "95 % interval", "others' own"


def print_value(result: dict[str, Any]) -> None:
    """Print what each site contributed, most first, in points of accuracy."""
    whole, nothing = 100 * result["everybody"], 100 * result["nobody"]
    what = "the shared part, for all sites" if result["of"] == "global" else "each site's own classifier"
    Console().print(cell(f"{what}: {whole:.2f} % with everybody, {nothing:.2f} % with nobody", "bold"))
    titles = (_ALL, *([] if result["exact"] else [_INTERVAL]), _ONE, _OTHERS)
    table = listing("site", *titles, right=titles)
    for site in sorted(result["sites"], key=lambda site: -site["shapley"]):
        between = [] if result["exact"] else [_interval(site["low"], site["high"])]
        table.add_row(
            *map(cell, (site["name"], _points(site["shapley"]), *between)),
            *map(cell, (_points(site["leave_one_out"]), _points(site["gain_of_others"]))),
        )
    Console().print(table)
    how = "exact, from all coalitions" if result["exact"] else f"from {result['permutations']} random orders"
    Console().print(cell(f"in points of accuracy; Shapley values are {how}, of one seed", "dim"))


def _points(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:+.2f}"


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None else f"{_points(low)} to {_points(high)}"
