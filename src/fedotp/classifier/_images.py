"""Images from anywhere, decoded completely or refused in one line."""

import io
import os
import warnings
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from fedotp.errors import FedotpError

ImageLike = str | Path | Image.Image
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # not EPS: Pillow would start another program for it
MAX_PIXELS = 100_000_000  # what a picture may unfold to: 300 MB in memory


def open_image(image: ImageLike) -> Image.Image:
    """A picture from a path; one that is open already is returned as it is."""
    if isinstance(image, Image.Image):
        return image
    try:
        return decode_image(Path(image).read_bytes())
    except (OSError, FedotpError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise FedotpError(f"cannot read image {image}: {reason}") from error


def decode_image(content: bytes, *, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The picture in the bytes of a file; one of more than `max_pixels` is refused undecoded."""
    if not content:
        raise FedotpError("zero bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow's: our own limit follows, odd metadata does no harm
            image = Image.open(io.BytesIO(content), formats=FORMATS)
            n_pixels = image.width * image.height
            if n_pixels <= max_pixels:
                image.load()
                return image
    except UnidentifiedImageError as error:
        raise FedotpError(f"not an image of a known format ({', '.join(FORMATS)})") from error
    except Exception as error:  # the bytes are foreign: whatever the decoder raises, the image is broken
        raise FedotpError(" ".join(str(error).split()) or type(error).__name__) from error
    raise FedotpError(f"{n_pixels / 1e6:,.0f} million pixels; at most {max_pixels / 1e6:,.0f} million are decoded")
