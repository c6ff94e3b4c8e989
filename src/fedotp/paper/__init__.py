"""The paper's tables and figures: its numbers as data, the runs that each is made of, and both side by side.

What needs torch is imported when it is first used.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.paper._draw import draw
    from fedotp.paper._entry import Cell, Entry, Number, Part, numbers
    from fedotp.paper._entry_runs import (
        Cost,
        Made,
        Missing,
        by_part,
        config_of,
        estimate,
        find_made,
        missing_inputs,
        trials_of,
    )
    from fedotp.paper._figures import ENTRIES, entry_named
    from fedotp.paper._lines import Block, Line
    from fedotp.paper._result import Grid, Result
    from fedotp.paper._toy import Checked, check

__all__ = [
    "ENTRIES",
    "Block",
    "Cell",
    "Checked",
    "Cost",
    "Entry",
    "Grid",
    "Line",
    "Made",
    "Missing",
    "Number",
    "Part",
    "Result",
    "by_part",
    "check",
    "config_of",
    "draw",
    "entry_named",
    "estimate",
    "find_made",
    "missing_inputs",
    "numbers",
    "trials_of",
]

__getattr__, __dir__ = lazy_face(
    __name__,
    __all__,
    ["_figures", "_entry", "_entry_runs", "_lines", "_result", "_draw", "_toy"],
)
