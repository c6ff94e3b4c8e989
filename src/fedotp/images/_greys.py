"""Greys of more than 8 bits, and their conversion to 8 bits by a window.

NumPy and Pillow are imported on first use, so that decoding processes and the command line start faster.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from fedotp._values import show
from fedotp.errors import FedotpError, SettingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    Floats = NDArray[np.float64]

WINDOW = "file"
"""The default window: that of the file."""

_RIGHT = '"file", "full", "data", centre/width such as "40/400", or from..to such as "0..4095"'  # for messages
_KEY = "greys"  # in the info of an image
_AT_A_TIME = 1 << 20  # pixels
_NUMBER = r"(-?\d{1,12}(?:\.\d{1,6})?)"
_CENTRE_WIDTH = re.compile(rf"{_NUMBER}/{_NUMBER}")
_FROM_TO = re.compile(rf"{_NUMBER}\.\.{_NUMBER}")

Function = Literal["LINEAR", "LINEAR_EXACT", "SIGMOID"]


class Window(NamedTuple):
    """Conversion of values around `centre` to greys by one of DICOM's functions (PS3.3 C.11.2.1.2)."""

    centre: float
    width: float
    function: Function = "LINEAR"

    @classmethod
    def between(cls, low: float, high: float) -> "Window":
        """Return the window from `low` (black) to `high` (white); equal ones give a step."""
        return cls((low + high) / 2, high - low, "LINEAR_EXACT")

    def shares(self, values: "Floats") -> "Floats":
        """Convert values to greys from 0 (black) to 1 (white)."""
        import numpy as np

        if self.function == "SIGMOID":
            with np.errstate(over="ignore"):
                return np.asarray(1 / (1 + np.exp(-4 * (values - self.centre) / self.width)))
        middle, width = self._line
        if width == 0:
            return np.asarray(values > middle, np.float64)
        return np.asarray(((values - middle) / width + 0.5).clip(0, 1))

    @property
    def ends(self) -> tuple[float, float]:
        """Values of black and white, beyond which all values are clipped."""
        middle, width = self._line if self.function != "SIGMOID" else (0, math.inf)
        return middle - width / 2, middle + width / 2

    @property
    def _line(self) -> tuple[float, float]:
        """Middle and width of the linear functions."""
        return (self.centre - 0.5, self.width - 1) if self.function == "LINEAR" else (self.centre, self.width)

    @property
    def is_sound(self) -> bool:
        """True if centre and width are valid for the function."""
        least = self.width >= 1 if self.function == "LINEAR" else self.width > 0
        return least and math.isfinite(self.width) and math.isfinite(self.centre)


@dataclass(frozen=True, eq=False)
class Table:
    """DICOM's window by a table: the greys of all values from `first` on, at most `white`."""

    first: int
    greys: "NDArray[np.uint16]"
    white: int

    def shares(self, values: "Floats") -> "Floats":
        """Convert values to greys from 0 (black) to 1 (white)."""
        import numpy as np

        places = np.rint(values).astype(np.int64) - self.first
        return np.asarray(self.greys[places.clip(0, len(self.greys) - 1)] / self.white)


@dataclass(frozen=True, eq=False)
class Greys:
    """Meaning of the numbers in an image: value = slope * (number + offset) + intercept.

    Attributes:
        full: range of values of the bit depth; None for numbers of 32 bits and floats.
        window: window of the file. Without one, "file" is the range of the image's values if `by_data`, as in DICOM
            viewers, else the full range.
        inverted: the smallest value is white.
        padding: range of values outside the object.
    """

    full: tuple[float, float] | None = (0, 65535)
    window: Window | Table | None = None
    offset: int = 0
    slope: float = 1.0
    intercept: float = 0.0
    inverted: bool = False
    by_data: bool = False
    padding: tuple[float, float] | None = None

    def attach(self, image: "Image.Image") -> "Image.Image":
        """Attach this to the image; images derived from it inherit it."""
        image.info[_KEY] = self
        return image


def read_window(text: str) -> Window | None:
    """Parse a window in numbers; return None for a named window."""
    if text in ("file", "full", "data"):
        return None
    if match := _CENTRE_WIDTH.fullmatch(text):
        window = Window(float(match[1]), float(match[2]))
    elif match := _FROM_TO.fullmatch(text):
        window = Window.between(float(match[1]), float(match[2]))
    if not match or not window.is_sound:
        raise SettingError("window", show(text), _RIGHT)
    return window


def read_windows(text: str) -> dict[str, str]:
    """Parse windows of single sites, such as "oslo=-600/1500, bergen=0..65535"."""
    parts = [part.rpartition("=") for part in text.split(",") if part.strip()]
    windows = {site.strip(): window.strip() for site, _, window in parts}
    try:
        for window in windows.values():
            read_window(window)
        if "" in windows:
            raise FedotpError(f"{show(windows[''])} has no site")
    except FedotpError as error:
        raise SettingError("windows", show(text), f'like "oslo=-600/1500, bergen=0..65535" ({error})') from None
    return windows


def largest_share(image: "Image.Image", window: str = WINDOW) -> float:
    """Return the used share of the bit depth if the window is its full range, else 1."""
    greys = _greys_of(image)
    if greys.full is None or _window(image, greys, window) != Window.between(*greys.full):
        return 1
    low, high = greys.full
    return (_extent(image, greys)[1] - low) / (high - low)


def clipped_share(image: "Image.Image", window: str = WINDOW) -> float:
    """Return the share of pixels that the window clips, without padding and pixels of the smallest value.

    The latter are usually outside the object.
    """
    greys = _greys_of(image)
    seen = _window(image, greys, window)
    if not isinstance(seen, Window):
        return 0
    (low, high), (least, _) = seen.ends, _extent(image, greys)
    n = n_beyond = 0
    for _, values in _values(image, greys):
        values = _within(values, greys)
        values = values[values > least]
        n, n_beyond = n + values.size, n_beyond + int(((values < low) | (values > high)).sum())
    return n_beyond / max(1, n)


def eight_bits(image: "Image.Image", window: str = WINDOW) -> "Image.Image":
    """Convert greys to 8 bits by a window, a few rows at a time to limit the memory."""
    import numpy as np
    from PIL import Image

    greys = _greys_of(image)
    seen = _window(image, greys, window)
    made = np.empty((image.height, image.width), np.uint8)
    for rows, values in _values(image, greys):
        shares = seen.shares(np.nan_to_num(values))
        made[rows] = np.rint(255 * (1 - shares if greys.inverted else shares))
    return Image.fromarray(made)


def _greys_of(image: "Image.Image") -> Greys:
    """Return the image's `Greys`, or a default; untrusted images may have any value under its key."""
    greys = image.info.get(_KEY)
    if isinstance(greys, Greys):
        return greys
    return Greys(full=(0, 255) if image.mode == "F" else (0, 65535))


def _window(image: "Image.Image", greys: Greys, window: str) -> Window | Table:
    if (given := read_window(window)) is not None:
        return given
    if window == "file" and greys.window is not None:
        return greys.window
    if window == "data" or greys.full is None or (window == "file" and greys.by_data):
        return Window.between(*_extent(image, greys))
    return Window.between(*greys.full)


def _extent(image: "Image.Image", greys: Greys) -> tuple[float, float]:
    """Return the smallest and the largest value of an image, without padding."""
    low, high = math.inf, -math.inf
    for _, values in _values(image, greys):
        values = _within(values, greys)
        low, high = min(low, values.min(initial=math.inf)), max(high, values.max(initial=-math.inf))
    return (float(low), float(high)) if low <= high else (0.0, 0.0)


def _within(values: "Floats", greys: Greys) -> "Floats":
    """Select the values (n,) of (h, W) that are finite and not padding."""
    import numpy as np

    if greys.padding is not None:
        values = values[(values < greys.padding[0]) | (values > greys.padding[1])]
    return values[np.isfinite(values)]


def _values(image: "Image.Image", greys: Greys) -> "Iterator[tuple[slice, Floats]]":
    """Yield the values of an image, some rows (h, W) at a time."""
    import numpy as np

    numbers = np.asarray(image)  # (H, W)
    step = max(1, _AT_A_TIME // max(1, image.width))
    for start in range(0, len(numbers), step):
        rows = slice(start, start + step)
        yield rows, (numbers[rows].astype(np.float64) + greys.offset) * greys.slope + greys.intercept
