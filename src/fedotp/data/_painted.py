"""Modified images of simulated federations: attackers' coloured patches, and sites' own windows of greys."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from PIL import Image, ImageDraw

from fedotp.clip import to_rgb
from fedotp.data._dataset import Dataset, ImageSource, Split
from fedotp.images import WINDOW, decoded, has_more_bits

_COLOUR = (255, 0, 255)  # rare in photographs


@dataclass(frozen=True)
class ChangedImages:
    """The images of `source`, whose files `change` replaces by their row and bytes; `note` is appended to names."""

    source: ImageSource
    change: Callable[[int, bytes], bytes]
    note: str = ""

    def name(self, row: int) -> str:
        return self.source.name(row) + self.note

    def where(self, row: int) -> str:
        return self.source.where(row)

    def read(self, row: int) -> bytes:
        return self.change(row, self.source.read(row))


def _png(image: Image.Image) -> bytes:
    """Return a file of the image, so that its tokens can be stored."""
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

    def change(row: int, content: bytes) -> bytes:
        with decoded(content) as image:
            return _png(paint(to_rgb(image, window), side))

    def changed(split: Split) -> Split:
        return replace(split, source=ChangedImages(split.source, change, f" with a patch of {side:g}"))

    return replace(dataset, train=changed(dataset.train), test=changed(dataset.test))


def windowed(dataset: Dataset, windows: Mapping[str, str]) -> Dataset:
    """Return a copy of the data set in which the greys of some sites (or domains) have windows of their own."""
    by_number = {dataset.site_number(site): window for site, window in windows.items()}

    def changed(split: Split) -> Split:
        places = zip(split.rows.tolist(), split.domains.tolist(), strict=True)
        by_row = {row: by_number[domain] for row, domain in places if domain in by_number}

        def change(row: int, content: bytes) -> bytes:
            if row not in by_row:
                return content
            with decoded(content) as image:
                return _png(to_rgb(image, by_row[row])) if has_more_bits(image) else content

        return replace(split, source=ChangedImages(split.source, change))

    return replace(dataset, train=changed(dataset.train), test=changed(dataset.test))
