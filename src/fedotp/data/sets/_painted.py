"""Images with a coloured patch on them: what the attackers of a simulated federation show."""

import io
from dataclasses import dataclass, replace

from PIL import Image, ImageDraw

from fedotp._greys import WINDOW
from fedotp.clip import to_rgb
from fedotp.data.sets._dataset import Dataset, FileContents, ImageSource, Split

_COLOUR = (255, 0, 255)  # rare in photographs


@dataclass(frozen=True)
class PaintedImages(FileContents):
    """The images of `source`, each with the patch, as PNG files: tokens of them are stored as those of any image."""

    source: ImageSource
    side: float
    window: str = WINDOW

    def name(self, row: int) -> str:
        """Return the image's own name, and that it is painted."""
        return f"{self.source.name(row)} with a patch of {self.side:g}"

    def where(self, row: int) -> str:
        """Return where the image itself is."""
        return self.source.where(row)

    def read(self, row: int) -> bytes:
        """Return the bytes of a PNG file."""
        with self.source.decoded(self.source.read(row)) as image:
            shown = paint(to_rgb(image, self.window), self.side)
        file = io.BytesIO()
        shown.save(file, "PNG", compress_level=1)
        return file.getvalue()


def paint(image: Image.Image, side: float) -> Image.Image:
    """A copy of an RGB picture with a square in the lower right corner of its central square, where a crop keeps it.

    `side` is that of the patch as a share of the picture's shorter side; it has one pixel at least.
    """
    image = image.copy()
    width, height = image.size
    short = min(width, height)
    right, below = (width + short) // 2 - 1, (height + short) // 2 - 1
    n = max(1, round(side * short))
    ImageDraw.Draw(image).rectangle((right - n + 1, below - n + 1, right, below), fill=_COLOUR)
    return image


def painted(dataset: Dataset, side: float, window: str = WINDOW) -> Dataset:
    """The same data set with the patch on every image; greys are seen through `window` first."""
    train, test = (_painted(split, side, window) for split in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test)


def _painted(split: Split, side: float, window: str) -> Split:
    return replace(split, source=PaintedImages(split.source, side, window))
