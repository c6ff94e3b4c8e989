"""Safe reading of pickles of data sets.

They can only call replacements that create arrays of numbers and strings and check their arguments, which NumPy's own
functions do not.
"""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from fedotp._files import read_file
from fedotp._text import one_line
from fedotp._unpickle import NotPlainError, PlainUnpickler
from fedotp.errors import FedotpError

_PLAIN = re.compile(r"[?bBiufSUO]\d{0,6}")  # types of numbers, strings and Python objects
_MOST_BYTES = 512 << 20  # of a file: CIFAR-100's training images have 155 MB
_MOST_VALUES = 1 << 28  # of an array: CIFAR has 2^27 pixels in one file


class _Type:
    """Replacement of `numpy.dtype`, with the byte order of its state."""

    def __init__(self, code: str, align: object = False, copy: object = False) -> None:
        if not isinstance(code, str) or not _PLAIN.fullmatch(code):
            raise NotPlainError(f"an array of type {str(code)[:40]!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])
        if state[5] > self.dtype.itemsize and self.dtype.kind in "SU":  # the code may lack the length
            self.dtype = np.dtype(f"{state[1]}{self.dtype.kind}{state[5] // np.dtype(f'{self.dtype.kind}1').itemsize}")


class _Array(np.ndarray[Any, np.dtype[Any]]):
    """An array that checks a state before setting it."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, in_columns, content = state
        n_values = math.prod(shape)
        if not isinstance(kind, _Type) or min(shape, default=0) < 0 or n_values > _MOST_VALUES:
            raise NotPlainError(f"an array of shape {str(shape)[:40]}")
        n_there = len(content) if kind.dtype.hasobject else len(content) // max(kind.dtype.itemsize, 1)
        if n_there != n_values or isinstance(content, list) != kind.dtype.hasobject:
            raise NotPlainError(f"an array of {n_values} values with data for {n_there}")
        super().__setstate__((1, shape, kind.dtype, bool(in_columns), content))  # type: ignore[arg-type]


def _reconstruct(kind: object, shape: object, typecode: object) -> _Array:
    """Replace NumPy's function: return an empty array, filled later by its state."""
    return np.empty(0).view(_Array)


def _scalar(kind: _Type, content: bytes) -> Any:
    """Replace NumPy's function."""
    if kind.dtype.hasobject or len(content) != kind.dtype.itemsize:
        raise NotPlainError("a number of the wrong length")
    return np.frombuffer(content, kind.dtype)[0]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Replace `_codecs.encode`: protocol 2 stores bytes as latin-1 text, no other codec is needed."""
    if encoding != "latin1":
        raise NotPlainError(f"codec {encoding!r}")
    return text.encode("latin1")


class _Reader(PlainUnpickler):
    """Reader of arrays of numbers or strings, under the module names of NumPy 1 and 2."""

    allowed = {  # noqa: RUF012
        ("numpy", "ndarray"): "ndarray",  # only an argument of _reconstruct, not callable
        ("numpy", "dtype"): _Type,
        ("_codecs", "encode"): _encode,
        **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
        **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    }

    def set_state(self, target: object, state: Any) -> None:
        """Set the state of an array or a type only: functions have attributes, too."""
        if not isinstance(target, _Array | _Type):
            raise NotPlainError("a state of an object that must not have one")
        target.__setstate__(state)


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain containers, strings, numbers and NumPy arrays; refuse anything else."""
    content = read_file(path, _MOST_BYTES)
    try:
        return _Reader(content).load()
    except Exception as error:  # corrupt pickles raise many kinds of errors
        why = f"it contains {error}" if isinstance(error, NotPlainError) else error
        raise FedotpError(f"{path} is not a pickle that can be read safely: {one_line(why)}") from error
