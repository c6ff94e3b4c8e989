"""Figures without a display: matplotlib is imported when one is drawn."""

from typing import TYPE_CHECKING

from fedotp.errors import FedotpError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0b6e99", "#d95f02", "#5a9e4b", "#7b5aa6", "#c2255c", "#8a6d3b", "#495057", "#0ca678", "#e67700")


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of that size in inches, laid out so that nothing is cut off."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise FedotpError("pictures need matplotlib: pip install 'fedotp[report]'") from error
    return Figure(figsize=(width, height), layout="constrained")
