"""Images from anywhere, decoded completely or refused in one line: a wrong guess would be a wrong prediction.

No other place opens a foreign picture, or makes one of an array.
"""

import io
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, Union, cast

from PIL import Image, UnidentifiedImageError

from fedotp._files import read_regular
from fedotp._text import one_line
from fedotp.errors import FedotpError, MissingPackageError
from fedotp.images._dicom import DicomFile
from fedotp.images._greys import Greys

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

ImageLike = Union[str, Path, Image.Image, "NDArray[Any]", "Tensor"]
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # not EPS: Pillow would start another program for it
_KNOWN = ", ".join((*FORMATS, "AVIF", "HEIC", "DICOM"))
MAX_BYTES = 128 << 20  # of a file
MAX_PIXELS = 120_000_000  # of one picture, and of all together that are decoded at a time: 480 MB; phones take 108
_BITS, _MEANS, _TILE_WIDTH, _TILE_LENGTH, _FORMAT = 258, 262, 322, 323, 339  # tags of TIFF

Image.MAX_IMAGE_PIXELS = MAX_PIXELS  # Pillow would warn of three quarters of that

# Pillow asks for pixels in blocks. Of blocks up to 32 MB, malloc keeps a hoard for every thread; larger ones go back.
Image.core.set_block_size(64 << 20)  # type: ignore[attr-defined]

_HINT = (
    "give (height, width) or (height, width, 3) of uint8 or of numbers from 0 to 1, as NumPy has them, "
    "or a tensor (3, height, width)"
)


class Room(Protocol):
    """What bounds the pixels that are decoded at a time."""

    def taken(self, n: int) -> AbstractContextManager[None]:
        """Take room for `n` pixels while the block lasts."""


def as_images(images: "ImageLike | Iterable[ImageLike]") -> list[ImageLike]:
    """One image or several as a list; an array or tensor with four axes is several."""
    if isinstance(images, str | Path | Image.Image) or (is_array(images) and len(images.shape) < 4):
        return [images]
    return list(cast("Iterable[ImageLike]", images))


def open_image(image: ImageLike) -> Image.Image:
    """A picture from a path, an array or a tensor (`picture_of`); one that is open already is returned as it is."""
    if isinstance(image, Image.Image):
        return image
    if not isinstance(image, str | Path):
        return picture_of(image)
    try:
        return decode_image(read_image(image))
    except (OSError, FedotpError) as error:
        raise FedotpError(f"cannot read image {image}: {reason(error)}") from error


def read_image(path: str | Path) -> bytes:
    """The bytes of an image file, which must be a plain file of at most `MAX_BYTES`."""
    return read_regular(path, MAX_BYTES)


def decode_image(content: bytes) -> Image.Image:
    """The picture in the bytes of a file, in its own mode; one of more than `MAX_PIXELS` is refused undecoded."""
    with decoded(content) as image:
        return image


@contextmanager
def decoded(content: bytes) -> Iterator[Image.Image]:
    """The same for as long as the block lasts: all threads together have at most `MAX_PIXELS` in such blocks.

    Who does not fit in waits, so that a thread must not be in two of them.
    """
    if not content:
        raise FedotpError("zero bytes")
    with _complaints():
        opened = _opened(content)
        unfolded = opened.n_pixels if isinstance(opened, DicomFile) else _unfolded(opened)
    if unfolded > MAX_PIXELS:
        raise FedotpError(f"{unfolded / 1e6:,.0f} million pixels; at most {MAX_PIXELS / 1e6:,.0f} million are decoded")
    with _ROOM.taken(unfolded):
        with _complaints():
            image = opened.picture() if isinstance(opened, DicomFile) else _loaded(opened)
        yield image


def is_dicom(content: bytes) -> bool:
    """Whether a file begins as DICOM files do."""
    return content[128:132] == b"DICM"


def is_dicom_file(path: str) -> bool:
    """Whether there is a plain file that begins so: scanners write them without a suffix."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return is_dicom(file.read(132))
    except OSError:
        return False


def has_more_bits(image: Image.Image) -> bool:
    """Whether a picture is of greys that a window is for."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def share_room(room: Room) -> None:
    """From now on, ask `room` before pixels are decoded in this process."""
    global _ROOM
    _ROOM = room


def reason(error: Exception) -> str:
    """What went wrong, without the number and the path that an `OSError` says along with it."""
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__


def _opened(content: bytes) -> Image.Image | DicomFile:
    """What the bytes hold, not decoded yet."""
    if is_dicom(content):
        dicom = DicomFile(content)
        if dicom.jpeg and (size := Image.open(io.BytesIO(dicom.jpeg), formats=("JPEG", "JPEG2000")).size) != dicom.size:
            raise FedotpError(f"the DICOM file says {dicom.size} pixels, the JPEG in it {size}")
        return dicom
    formats: tuple[str, ...] = FORMATS
    if content[4:8] == b"ftyp":
        formats = ("AVIF",) if content[8:11] == b"avi" else ("HEIF",)
        _require_format(formats[0])
    return Image.open(io.BytesIO(content), formats=formats)


def _require_format(name: str) -> None:
    """Refuse pictures for which something must be installed first."""
    if name == "AVIF":
        Image.init()
        if name not in Image.OPEN:
            raise MissingPackageError("reading AVIF needs Pillow 11.3 or later: pip install -U pillow")
    elif name not in Image.OPEN:
        try:
            from pillow_heif import register_heif_opener
        except ImportError as error:
            raise MissingPackageError("reading HEIC needs pillow-heif: pip install 'fedotp[heif]'") from error
        register_heif_opener(thumbnails=False)


def _loaded(image: Image.Image) -> Image.Image:
    """The picture with its pixels; greys of more than 8 bits know what they mean."""
    tags = dict(getattr(image, "tag_v2", {}))  # of a TIFF; some are forgotten when it is loaded
    image.load()
    image.getexif()  # read now, and kept: preprocessing asks for the orientation
    if not has_more_bits(image):
        return image
    bits, signed = int(tags.get(_BITS, (16,))[0]), tags.get(_FORMAT, (1,))[0] == 2
    least = -(1 << bits - 1) if signed else 0
    full = None if bits > 16 or image.mode == "F" else (least, least + (1 << bits) - 1)
    return Greys(full, inverted=tags.get(_MEANS) == 0).attach(image)


def _unfolded(image: Image.Image) -> int:
    """Pixels that are unpacked at once: of the picture, or of a tile that may be larger than the picture itself."""
    tags = getattr(image, "tag_v2", {})
    tile = int(tags.get(_TILE_WIDTH, 0)) * int(tags.get(_TILE_LENGTH, 0))
    return max(image.width * image.height, tile)


@contextmanager
def _complaints() -> Iterator[None]:
    """Turn the many errors of Pillow for broken and gigantic pictures into a `FedotpError`."""
    try:
        yield
    except MissingPackageError:
        raise
    except UnidentifiedImageError as error:
        raise FedotpError(f"not an image of a known format ({_KNOWN})") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise FedotpError(f"too many pixels; at most {MAX_PIXELS / 1e6:,.0f} million are decoded") from error
    except Exception as error:  # the bytes are foreign: whatever the decoder raises, the image is broken
        raise FedotpError(one_line(reason(error))) from error


class _Room:
    """Room for so many pixels; who does not fit in waits until others have left."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, n: int) -> Iterator[None]:
        """Take room for `n` pixels while the block lasts."""
        n = min(n, self._most)  # more than there ever is would wait for ever
        with self._changed:
            self._changed.wait_for(lambda: self._left >= n)
            self._left -= n
        try:
            yield
        finally:
            with self._changed:
                self._left += n
                self._changed.notify_all()


_ROOM: Room = _Room(MAX_PIXELS)


def is_array(value: object) -> TypeGuard[Any]:
    """Whether it is a NumPy array, a tensor, or the like."""
    return hasattr(value, "__array__") and hasattr(value, "shape") and not isinstance(value, Image.Image)


def picture_of(array: Any) -> Image.Image:
    """The picture in an array (H, W) or (H, W, 1, 3 or 4), or in a tensor with its colours in front, as torch has them.

    uint8 as it is, greys of 16 bits too; booleans are black and white; floating-point numbers go from 0 to 1.
    """
    import numpy as np

    pixels = np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    if hasattr(array, "detach") and pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1)  # (C, H, W) -> (H, W, C)
    shape = tuple(array.shape)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if 0 in pixels.shape or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[-1] in (3, 4))):
        raise FedotpError(f"an array of shape {shape} is no picture; {_HINT}")
    if pixels.dtype.kind == "f":
        pixels = _eight_bits(pixels)
    elif pixels.dtype == bool:
        pixels = pixels.astype(np.uint8) * 255
    if pixels.dtype != np.uint8 and not (pixels.dtype == np.uint16 and pixels.ndim == 2):
        raise FedotpError(f"an array of {array.dtype} is no picture; {_HINT}")
    return Image.fromarray(np.ascontiguousarray(pixels))


def _eight_bits(pixels: "NDArray[Any]") -> "NDArray[np.uint8]":
    import numpy as np

    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0 and high <= 1):  # nan neither
        raise FedotpError(
            f"a picture of floating-point numbers goes from 0 to 1, this one from {low:.3g} to {high:.3g}; "
            "divide by 255, or give what `preprocess` made to `encode_pixels`"
        )
    return (pixels.astype(np.float64) * 255).round().astype(np.uint8)
