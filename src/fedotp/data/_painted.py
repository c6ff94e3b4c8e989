"""Modified images of simulated federations: attackers' coloured patches, and sites' own windows of greys."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace

from PIL import Image, ImageDraw

from fedotp.clip import to_rgb
from fedotp.data._dataset import Dataset, FileContents, ImageSource, Split
from fedotp.images import WINDOW, has_more_bits

_COLOUR = (255, 0, 255)  # rare in photographs


@dataclass(frozen=True)
class PaintedImages(FileContents):
    """The images of `source` with the patch, as PNG files, so that their tokens can be stored."""

    source: ImageSource
    side: float
    window: str = WINDOW

    def name(self, row: int) -> str:
        """Return the image's name and the size of the patch."""
        return f"{self.source.name(row)} with a patch of {self.side:g}"

    def where(self, row: int) -> str:
        return self.source.where(row)

    def read(self, row: int) -> bytes:
        with self.source.decoded(self.source.read(row)) as image:
            return _png(paint(to_rgb(image, self.window), self.side))


@dataclass(frozen=True)
class WindowedImages(FileContents):
    """The images of `source`; greys of more than 8 bits at the rows in `windows` are converted to PNG files."""

    source: ImageSource
    windows: Mapping[int, str]

    def name(self, row: int) -> str:
        return self.source.name(row)

    def where(self, row: int) -> str:
        return self.source.where(row)

    def read(self, row: int) -> bytes:
        """Return the bytes of the original file, or of the PNG file."""
        content = self.source.read(row)
        if row not in self.windows:
            return content
        with self.source.decoded(content) as image:
            return _png(to_rgb(image, self.windows[row])) if has_more_bits(image) else content


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def paint(image: Image.Image, side: float) -> Image.Image:
    """Return a copy of an RGB image with a patch in the lower right corner of the central square, inside the crop.

    `side` is that of the patch as a share of the image's shorter side, at least one pixel.
    """
    image = image.copy()
    width, height = image.size
    short = min(width, height)
    right, below = (width + short) // 2 - 1, (height + short) // 2 - 1
    n = max(1, round(side * short))
    ImageDraw.Draw(image).rectangle((right - n + 1, below - n + 1, right, below), fill=_COLOUR)
    return image


def painted(dataset: Dataset, side: float, window: str = WINDOW) -> Dataset:
    """Return a copy of the data set with the patch on every image; greys are first converted by `window`."""
    train, test = (_painted(split, side, window) for split in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test)


def windowed(dataset: Dataset, windows: Mapping[str, str]) -> Dataset:
    """Return a copy of the data set in which the greys of some sites (or domains) have windows of their own."""
    by_number = {dataset.site_number(site): window for site, window in windows.items()}
    train, test = (_windowed(split, by_number) for split in (dataset.train, dataset.test))
    return replace(dataset, train=train, test=test)


def _windowed(split: Split, windows: Mapping[int, str]) -> Split:
    if not isinstance(split.source, FileContents):  # pixel arrays have 8 bits
        return split
    places = zip(split.rows.tolist(), split.domains.tolist(), strict=True)
    by_row = {row: windows[domain] for row, domain in places if domain in windows}
    return replace(split, source=WindowedImages(split.source, by_row))


def _painted(split: Split, side: float, window: str) -> Split:
    return replace(split, source=PaintedImages(split.source, side, window))
