"""Tables of runs: columns, paired differences and controls; imported lazily, as the checks of one run need no torch."""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp._text import n_bytes as n_bytes
    from fedotp.runs.tables._columns import common_columns as common_columns
    from fedotp.runs.tables._columns import numbers_of as numbers_of
    from fedotp.runs.tables._controls import CONTROLS as CONTROLS
    from fedotp.runs.tables._controls import check_run as check_run
    from fedotp.runs.tables._controls import check_runs as check_runs
    from fedotp.runs.tables._controls import open_checks as open_checks
    from fedotp.runs.tables._differences import SHARE as SHARE
    from fedotp.runs.tables._differences import Difference as Difference
    from fedotp.runs.tables._differences import Differences as Differences
    from fedotp.runs.tables._differences import Pair as Pair
    from fedotp.runs.tables._differences import complete as complete
    from fedotp.runs.tables._differences import holm as holm
    from fedotp.runs.tables._differences import paired as paired
    from fedotp.runs.tables._table import Row as Row
    from fedotp.runs.tables._table import Table as Table
    from fedotp.runs.tables._table import markdown as markdown

__getattr__, __dir__ = lazy_face(__name__)
