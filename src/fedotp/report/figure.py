"""Figures without a display; matplotlib is imported on first use."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from fedotp._files import write_atomically
from fedotp.errors import FedotpError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
"""Okabe and Ito's colour-blind safe palette, without yellow, which is invisible on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")

FIGURE_FORMATS = ("png", "svg", "pdf")
_UNDATED = {"png": None, "svg": {"Date": None}, "pdf": {"CreationDate": None}}  # for reproducible files


def new_figure(width: float, height: float, *, tight: bool = False) -> "Figure":
    """Make an empty figure of that size in inches with a constrained layout; `tight`: little space between panels."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise FedotpError("figures need matplotlib: pip install 'fedotp[report]'") from error
    pad, space = (0.02, 0.0) if tight else (0.04, 0.02)  # inches, share of a panel
    layout = ConstrainedLayoutEngine(w_pad=pad, h_pad=pad, wspace=space, hspace=space)
    return Figure(figsize=(width, height), layout=layout)


def bare(axes: "Axes") -> None:
    """Draw a light grid and no frame at the top and right."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write a figure atomically, in the format of the path's suffix (png, svg or pdf)."""
    kind = path.suffix.removeprefix(".")
    if kind not in FIGURE_FORMATS:
        raise FedotpError(f"{path}: must be a {', '.join(FIGURE_FORMATS[:-1])} or {FIGURE_FORMATS[-1]} file")
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "fedotp"}):
        figure.savefig(content, format=kind, dpi=150, metadata=_UNDATED[kind])
    write_atomically(path, content.getvalue())
    return path
