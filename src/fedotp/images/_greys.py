"""Greys of more than 8 bits: what their numbers mean, and the window through which they become 8 bits.

NumPy is imported when there is such a picture: decoding processes start faster without. The command line knows windows,
and needs no Pillow for it.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from fedotp.errors import FedotpError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    Floats = NDArray[np.float64]

WINDOW = "file"
"""The window unless another one is asked for: what the file says."""

RIGHT_WINDOW = '"file", "full", "data", centre/width such as "40/400", or from..to such as "0..4095"'  # for messages
RIGHT_WINDOWS = '"oslo=-600/1500, bergen=0..65535"'
_KEY = "greys"  # in the info of a picture
_AT_A_TIME = 1 << 20  # pixels
_NUMBER = r"(-?\d{1,12}(?:\.\d{1,6})?)"
_CENTRE_WIDTH = re.compile(rf"{_NUMBER}/{_NUMBER}")
_FROM_TO = re.compile(rf"{_NUMBER}\.\.{_NUMBER}")

Function = Literal["LINEAR", "LINEAR_EXACT", "SIGMOID"]


class Window(NamedTuple):
    """Values about `centre` become greys from black to white: DICOM's three functions, PS3.3 C.11.2.1.2."""

    centre: float
    width: float
    function: Function = "LINEAR"

    @classmethod
    def between(cls, low: float, high: float) -> "Window":
        """`low` is black and `high` is white; between equal ones there is one step."""
        return cls((low + high) / 2, high - low, "LINEAR_EXACT")

    def shares(self, values: "Floats") -> "Floats":
        """Of white: from 0 to 1."""
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
        """The values that become black and white, beyond which all are the same."""
        middle, width = self._line if self.function != "SIGMOID" else (0, math.inf)
        return middle - width / 2, middle + width / 2

    @property
    def _line(self) -> tuple[float, float]:
        """The middle and the width of the linear functions."""
        return (self.centre - 0.5, self.width - 1) if self.function == "LINEAR" else (self.centre, self.width)

    @property
    def is_sound(self) -> bool:
        """Whether the width is one that the function can have."""
        least = self.width >= 1 if self.function == "LINEAR" else self.width > 0
        return least and math.isfinite(self.width) and math.isfinite(self.centre)


@dataclass(frozen=True, eq=False)
class Table:
    """DICOM's other kind of window: the grey of every value from `first` on, `white` at most."""

    first: int
    greys: "NDArray[np.uint16]"
    white: int

    def shares(self, values: "Floats") -> "Floats":
        """Of white: from 0 to 1."""
        import numpy as np

        places = np.rint(values).astype(np.int64) - self.first
        return np.asarray(self.greys[places.clip(0, len(self.greys) - 1)] / self.white)


@dataclass(frozen=True, eq=False)
class Greys:
    """What the numbers of a picture mean: value = slope * (number + offset) + intercept.

    Attributes:
        full: the least and the largest value that the bit depth has room for; None for numbers of 32 bits and floats.
        window: the file's own; without one, "file" means the values of the picture itself where `by_data`, as for
            viewers of DICOM, and the full range otherwise.
        inverted: the least value is white.
        padding: values from .. to that are not of the picture.
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
        """The picture, with this said of it; the pictures that are made of it have it, too."""
        image.info[_KEY] = self
        return image


def read_window(text: str) -> Window | None:
    """The window that `text` gives in numbers; None for those with a name. Others are refused."""
    if text in ("file", "full", "data"):
        return None
    if match := _CENTRE_WIDTH.fullmatch(text):
        window = Window(float(match[1]), float(match[2]))
    elif match := _FROM_TO.fullmatch(text):
        window = Window.between(float(match[1]), float(match[2]))
    if not match or not window.is_sound:
        raise FedotpError(f"window {text[:40]!r}: must be {RIGHT_WINDOW}")
    return window


def read_windows(text: str) -> dict[str, str]:
    """The windows of single sites, such as "oslo=-600/1500, bergen=0..65535"."""
    parts = [part.rpartition("=") for part in text.split(",") if part.strip()]
    windows = {site.strip(): window.strip() for site, _, window in parts}
    for site, window in windows.items():
        read_window(window)  # or refused
        if not site:
            raise FedotpError(f"window {window!r}: must be of a site, as in {RIGHT_WINDOWS}")
    return windows


def largest_share(image: "Image.Image", window: str = WINDOW) -> float:
    """How much of its bit depth a picture uses where the window is all of it; 1 where it is not."""
    greys = _greys_of(image)
    if greys.full is None or _window(image, greys, window) != Window.between(*greys.full):
        return 1
    low, high = greys.full
    return (_extent(image, greys)[1] - low) / (high - low)


def clipped_share(image: "Image.Image", window: str = WINDOW) -> float:
    """How many of a picture's pixels the window makes all black or all white.

    Padding and pixels of the least value do not count: they are what is around the object.
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
    """Greys of more bits through a window, 0 to 255; a few rows at a time, as the numbers between take much room."""
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
    """What is known of the numbers; a stranger may have put anything under the name."""
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
    """The least and the largest value of a picture, without padding."""
    low, high = math.inf, -math.inf
    for _, values in _values(image, greys):
        values = _within(values, greys)
        low, high = min(low, values.min(initial=math.inf)), max(high, values.max(initial=-math.inf))
    return (float(low), float(high)) if low <= high else (0.0, 0.0)


def _within(values: "Floats", greys: Greys) -> "Floats":
    """Those (n,) of the values (h, W) that are finite and no padding."""
    import numpy as np

    if greys.padding is not None:
        values = values[(values < greys.padding[0]) | (values > greys.padding[1])]
    return values[np.isfinite(values)]


def _values(image: "Image.Image", greys: Greys) -> "Iterator[tuple[slice, Floats]]":
    """The values of a picture, some rows at a time (h, W)."""
    import numpy as np

    numbers = np.asarray(image)  # (H, W)
    step = max(1, _AT_A_TIME // max(1, image.width))
    for start in range(0, len(numbers), step):
        rows = slice(start, start + step)
        yield rows, (numbers[rows].astype(np.float64) + greys.offset) * greys.slope + greys.intercept
