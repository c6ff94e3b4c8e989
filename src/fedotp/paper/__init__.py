"""The paper's tables and figures: its numbers as data, the runs that each is made of, and both side by side.

What needs torch is imported when it is first used.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.paper._catalog import ENTRIES, entry_named
    from fedotp.paper._check import Checked, check
    from fedotp.paper._cost import Cost, estimate
    from fedotp.paper._draw import draw
    from fedotp.paper._entry import Entry, Part
    from fedotp.paper._inputs import Missing, missing_inputs
    from fedotp.paper._lines import Block, Line
    from fedotp.paper._numbers import Cell, Number, numbers
    from fedotp.paper._queue import Made, by_part, config_of, find_made, trials_of
    from fedotp.paper._result import Grid, Result

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
    ["_catalog", "_numbers", "_entry", "_inputs", "_queue", "_cost", "_lines", "_result", "_draw", "_check"],
)
