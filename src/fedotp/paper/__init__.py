"""The paper's tables and figures: its numbers, the runs to reproduce them, and comparisons of both."""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.paper._draw import draw as draw
    from fedotp.paper._entries import ENTRIES as ENTRIES
    from fedotp.paper._entries import entry_named as entry_named
    from fedotp.paper._entry import Cell as Cell
    from fedotp.paper._entry import Entry as Entry
    from fedotp.paper._entry import numbers as numbers
    from fedotp.paper._entry_runs import Made as Made
    from fedotp.paper._entry_runs import Missing as Missing
    from fedotp.paper._entry_runs import by_part as by_part
    from fedotp.paper._entry_runs import find_made as find_made
    from fedotp.paper._entry_runs import missing_inputs as missing_inputs
    from fedotp.paper._entry_runs import trials_of as trials_of
    from fedotp.paper._result import Result as Result

__getattr__, __dir__ = lazy_face(__name__)
