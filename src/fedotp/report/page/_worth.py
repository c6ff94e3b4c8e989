"""What each client of a run contributed, as the page shows it."""

from typing import Any

from fedotp.report.page._gather import share
from fedotp.runs import RunDirectory, read_value, reading

_COLUMNS = ("shapley", "low", "high", "leave_one_out", "gain_of_others")


def gather_worth(run: RunDirectory) -> dict[str, Any] | None:
    """What `fedotp value` has found of a run, in millionths; None where nobody asked."""
    with reading(run):
        if (value := read_value(run)) is None:
            return None
        return {
            "of": value["of"],
            "permutations": value["permutations"],
            "everybody": share(value["everybody"]),
            "nobody": share(value["nobody"]),
            "sites": [{"name": site["name"], **{key: share(site[key]) for key in _COLUMNS}} for site in value["sites"]],
        }
