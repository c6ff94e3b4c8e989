"""Decoding of untrusted images, completely or with an error. Only this module opens images or converts arrays."""

import io
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union, cast

from PIL import Image, UnidentifiedImageError

from fedotp._files import read_regular
from fedotp._text import one_line
from fedotp.errors import FedotpError, MissingPackageError
from fedotp.images._dicom import DicomFile
from fedotp.images._greys import Greys

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

ImageLike = Union[str, Path, Image.Image, "NDArray[Any]", "Tensor"]
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # not EPS, for which Pillow runs another program
_KNOWN = ", ".join((*FORMATS, "AVIF", "HEIC", "DICOM"))
MAX_BYTES = 128 << 20  # of a file
MAX_PIXELS = 120_000_000  # of one image, and of all images decoded at a time: 480 MB; phone photos have up to 108
_BITS, _MEANS, _TILE_WIDTH, _TILE_LENGTH, _FORMAT = 258, 262, 322, 323, 339  # tags of TIFF

Image.MAX_IMAGE_PIXELS = MAX_PIXELS  # Pillow's default is 75 % of that

# Pillow allocates pixels in blocks. malloc keeps freed blocks of up to 32 MB for each thread, but returns larger ones.
Image.core.set_block_size(64 << 20)  # type: ignore[attr-defined]

_HINT = (
    "must be a NumPy array (height, width) or (height, width, 3) or a tensor (3, height, width), "
    "of uint8 or of numbers from 0 to 1"
)


class Room:
    """Budget of pixels; reservations wait until there are enough left."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, n: int) -> Iterator[None]:
        """Reserve `n` pixels within the block."""
        n = min(n, self._most)  # a larger reservation would never succeed
        with self._changed:
            self._changed.wait_for(lambda: self._left >= n)
            self._left -= n
        try:
            yield
        finally:
            with self._changed:
                self._left += n
                self._changed.notify_all()


_ROOM = Room(MAX_PIXELS)


def as_images(images: "ImageLike | Iterable[ImageLike]") -> list[ImageLike]:
    """Return one or several images as a list; an array or tensor with four axes is several."""
    if isinstance(images, str | Path | Image.Image) or len(getattr(images, "shape", range(4))) < 4:
        return [cast("ImageLike", images)]
    return list(cast("Iterable[ImageLike]", images))


def open_image(image: ImageLike) -> Image.Image:
    """Open an image from a path, or convert an array or a tensor (`picture_of`); return an open image unchanged."""
    if isinstance(image, Image.Image):
        return image
    if not isinstance(image, str | Path):
        return picture_of(image)
    try:
        return decode_image(read_image(image))
    except (OSError, FedotpError) as error:
        raise FedotpError(f"cannot read image {image}: {reason(error)}") from error


def read_image(path: str | Path) -> bytes:
    """Read an image file, which must be a regular file of at most `MAX_BYTES`."""
    return read_regular(path, MAX_BYTES)


def decode_image(content: bytes) -> Image.Image:
    """Decode the bytes of an image file, in its own mode; it must have at most `MAX_PIXELS`."""
    with decoded(content) as image:
        return image


@contextmanager
def decoded(content: bytes) -> Iterator[Image.Image]:
    """Decode an image as `decode_image` does, for use within the block.

    All threads together can use at most `MAX_PIXELS`; others wait, so a thread must not nest such blocks.
    """
    if not content:
        raise FedotpError("zero bytes")
    with _as_fedotp_errors():
        opened = _opened(content)
        n_pixels = opened.n_pixels if isinstance(opened, DicomFile) else _n_pixels(opened)
    if n_pixels > MAX_PIXELS:
        raise FedotpError(f"{n_pixels / 1e6:,.0f} million pixels: must be at most {MAX_PIXELS / 1e6:,.0f} million")
    with _ROOM.taken(n_pixels):
        with _as_fedotp_errors():
            image = opened.picture() if isinstance(opened, DicomFile) else _loaded(opened)
        yield image


def is_dicom(content: bytes) -> bool:
    """True if the content has the signature of DICOM files."""
    return content[128:132] == b"DICM"


def is_dicom_file(path: str) -> bool:
    """True if the path is a regular file with the signature of DICOM files, which often have no suffix."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return is_dicom(file.read(132))
    except OSError:
        return False


def has_more_bits(image: Image.Image) -> bool:
    """True if an image has greys of more than 8 bits, which need a window."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def share_room(room: Room) -> None:
    """Make this process reserve pixels in `room` before decoding."""
    global _ROOM
    _ROOM = room


def reason(error: Exception) -> str:
    """Return the message of an error, without the number and path of an `OSError`."""
    return (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__


def _opened(content: bytes) -> Image.Image | DicomFile:
    """Open an image without decoding its pixels."""
    if is_dicom(content):
        dicom = DicomFile(content)
        if dicom.jpeg and (size := Image.open(io.BytesIO(dicom.jpeg), formats=("JPEG", "JPEG2000")).size) != dicom.size:
            raise FedotpError(f"the DICOM file declares {dicom.size} pixels, but its JPEG has {size}")
        return dicom
    formats: tuple[str, ...] = FORMATS
    if content[4:8] == b"ftyp":
        formats = ("AVIF",) if content[8:11] == b"avi" else ("HEIF",)
        _require_format(formats[0])
    return Image.open(io.BytesIO(content), formats=formats)


def _require_format(name: str) -> None:
    """Require the package that decodes the format."""
    if name == "AVIF":
        Image.init()
        if name not in Image.OPEN:
            raise MissingPackageError("AVIF images need Pillow 11.3 or later: pip install -U pillow")
    elif name not in Image.OPEN:
        try:
            from pillow_heif import register_heif_opener
        except ImportError as error:
            raise MissingPackageError("HEIC images need pillow-heif: pip install 'fedotp[heif]'") from error
        register_heif_opener(thumbnails=False)


def _loaded(image: Image.Image) -> Image.Image:
    """Load the pixels; greys of more than 8 bits get their `Greys`."""
    tags = dict(getattr(image, "tag_v2", {}))  # of a TIFF; some are removed by loading
    image.load()
    image.getexif()  # cached for preprocessing, which needs the orientation
    if not has_more_bits(image):
        return image
    bits, signed = int(tags.get(_BITS, (16,))[0]), tags.get(_FORMAT, (1,))[0] == 2
    least = -(1 << bits - 1) if signed else 0
    full = None if bits > 16 or image.mode == "F" else (least, least + (1 << bits) - 1)
    return Greys(full, inverted=tags.get(_MEANS) == 0).attach(image)


def _n_pixels(image: Image.Image) -> int:
    """Return the pixels decoded at once: of the image, or of a tile, which may be larger than the image."""
    tags = getattr(image, "tag_v2", {})
    tile = int(tags.get(_TILE_WIDTH, 0)) * int(tags.get(_TILE_LENGTH, 0))
    return max(image.width * image.height, tile)


@contextmanager
def _as_fedotp_errors() -> Iterator[None]:
    """Convert Pillow's errors for broken and huge images into `FedotpError`."""
    try:
        yield
    except MissingPackageError:
        raise
    except UnidentifiedImageError as error:
        raise FedotpError(f"not an image of a supported format ({_KNOWN})") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise FedotpError(f"too many pixels: must be at most {MAX_PIXELS / 1e6:,.0f} million") from error
    except Exception as error:  # any error of a decoder means that the image is broken
        raise FedotpError(one_line(reason(error))) from error


def picture_of(array: Any) -> Image.Image:
    """Convert an array (H, W) or (H, W, 1, 3 or 4), or a tensor (1, 3 or 4, H, W), to an image.

    Values are uint8, uint16 (greys), booleans, or floating-point numbers from 0 to 1.
    """
    import numpy as np

    pixels = np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    if hasattr(array, "detach") and pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1)  # (C, H, W) -> (H, W, C)
    shape = tuple(array.shape)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if 0 in pixels.shape or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[-1] in (3, 4))):
        raise FedotpError(f"an array of shape {shape} is not an image: {_HINT}")
    if pixels.dtype.kind == "f":
        low, high = float(pixels.min()), float(pixels.max())
        if not (low >= 0 and high <= 1):  # also rejects nan
            raise FedotpError(
                f"floating-point pixels must be from 0 to 1, got {low:.3g} to {high:.3g}; "
                "divide by 255, or pass the output of `preprocess` to `encode_pixels`"
            )
        pixels = (pixels.astype(np.float64) * 255).round().astype(np.uint8)
    elif pixels.dtype == bool:
        pixels = pixels.astype(np.uint8) * 255
    if pixels.dtype != np.uint8 and not (pixels.dtype == np.uint16 and pixels.ndim == 2):
        raise FedotpError(f"an array of {array.dtype} is not an image: {_HINT}")
    return Image.fromarray(np.ascontiguousarray(pixels))
