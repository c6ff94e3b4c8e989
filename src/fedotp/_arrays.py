"""Pictures from arrays and tensors, or a refusal in one line: a wrong guess would be a wrong prediction."""

from typing import TYPE_CHECKING, Any, TypeGuard

from PIL import Image

from fedotp.errors import FedotpError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HINT = (
    "give (height, width) or (height, width, 3) of uint8 or of numbers from 0 to 1, as NumPy has them, "
    "or a tensor (3, height, width)"
)


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
    """Numbers from 0 to 1 as eight bits."""
    import numpy as np

    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0 and high <= 1):  # nan neither
        raise FedotpError(
            f"a picture of floating-point numbers goes from 0 to 1, this one from {low:.3g} to {high:.3g}; "
            "divide by 255, or give what `preprocess` made to `encode_pixels`"
        )
    return (pixels.astype(np.float64) * 255).round().astype(np.uint8)
