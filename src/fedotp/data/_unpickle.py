"""Read other people's pickles without running other people's code."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedotp._files import read_regular
from fedotp._text import one_line
from fedotp.errors import FedotpError


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Stand in for `_codecs.encode`: protocol 2 stores bytes as latin-1 text, no other codec is needed."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"codec {encoding!r}")
    return text.encode("latin1")


_RECONSTRUCT: Callable[..., Any] = np.empty(0).__reduce__()[0]  # type: ignore[assignment]
_SCALAR: Callable[..., Any] = np.float64(0).__reduce__()[0]  # type: ignore[assignment]

# Everything a pickled array of numbers or strings needs, under NumPy 1's and NumPy 2's module names.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _RECONSTRUCT for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _SCALAR for core in ("core", "_core")},
}


_MOST_BYTES = 512 << 20  # CIFAR-100's training images take 155 MB


class _Restricted(pickle._Unpickler):
    """Python's own: the one in C makes room for as many memorised values as a pickle of 20 bytes pleases."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it wants to run {module}.{name}") from None


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain containers, strings, numbers and NumPy arrays; refuse anything else.

    Strings written by Python 2 (CIFAR's files) are read as latin-1 text.
    """
    try:
        content = read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror}") from error
    try:
        return _Restricted(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # damaged pickles fail in many ways; none of them is a bug of ours
        raise FedotpError(f"{path} is not a pickle that can be read safely: {one_line(error)}") from error
