"""What our kernels do to pictures, restated with whole numbers of NumPy."""

import numpy as np
from PIL import Image

from fedotp.clip import Window
from fedotp.clip._resample import PRECISION, Taps, passes


def along_rows(pixels: np.ndarray, taps: Taps) -> np.ndarray:
    """(lines, pixels, 3) to (lines, n, 3), with Python's whole numbers."""
    n_taps = taps.weights.shape[1]
    padded = np.pad(pixels.astype(np.int64), ((0, 0), (0, n_taps), (0, 0)))
    seen = padded[:, taps.first[:, None] + np.arange(n_taps)]  # (lines, n, k, 3)
    total = (seen * taps.weights[:, :, None]).sum(axis=2) + (1 << (PRECISION - 1))
    return (total >> PRECISION).clip(0, 255)


def restated(image: Image.Image, window: Window, size: int) -> np.ndarray:
    way, pixels = passes(window, size), np.asarray(image)
    if way.rows_first:
        return along_rows(along_rows(pixels.swapaxes(0, 1), way.rows).swapaxes(0, 1), way.columns)
    return along_rows(along_rows(pixels, way.columns).swapaxes(0, 1), way.rows).swapaxes(0, 1)
