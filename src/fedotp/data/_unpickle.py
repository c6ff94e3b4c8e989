"""Safe reading of untrusted pickles.

A pickle can call any function with any arguments. Here it can only call replacements that create arrays of numbers and
strings and check their arguments, which NumPy's own functions do not.
"""

import io
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedotp._files import read_regular
from fedotp._text import one_line
from fedotp.errors import FedotpError

_PLAIN = re.compile(r"[?bBiufSUO]\d{0,6}")  # types of numbers, strings and Python objects
_MOST_BYTES = 512 << 20  # of a file: CIFAR-100's training images have 155 MB
_MOST_VALUES = 1 << 28  # of an array: CIFAR has 2^27 pixels in one file


class _Type:
    """Replacement of `numpy.dtype`, with the byte order of its state."""

    def __init__(self, code: str, align: object = False, copy: object = False) -> None:
        if not isinstance(code, str) or not _PLAIN.fullmatch(code):
            raise pickle.UnpicklingError(f"an array of type {str(code)[:40]!r}")
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
            raise pickle.UnpicklingError(f"an array of shape {str(shape)[:40]}")
        n_there = len(content) if kind.dtype.hasobject else len(content) // max(kind.dtype.itemsize, 1)
        if n_there != n_values or isinstance(content, list) != kind.dtype.hasobject:
            raise pickle.UnpicklingError(f"an array of {n_values} values with data for {n_there}")
        super().__setstate__((1, shape, kind.dtype, bool(in_columns), content))  # type: ignore[arg-type]


def _reconstruct(kind: object, shape: object, typecode: object) -> _Array:
    """Replace NumPy's function: return an empty array, filled later by its state."""
    return np.empty(0).view(_Array)


def _scalar(kind: _Type, content: bytes) -> Any:
    """Replace NumPy's function."""
    if kind.dtype.hasobject or len(content) != kind.dtype.itemsize:
        raise pickle.UnpicklingError("a number of the wrong length")
    return np.frombuffer(content, kind.dtype)[0]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Replace `_codecs.encode`: protocol 2 stores bytes as latin-1 text, no other codec is needed."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"codec {encoding!r}")
    return text.encode("latin1")


# Everything that pickled arrays of numbers or strings need, under the module names of NumPy 1 and 2.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): "ndarray",  # only an argument of _reconstruct, not callable
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
}


class _Restricted(pickle._Unpickler):
    """Python's unpickler with restrictions; the one in C allocates a memo of any size that a pickle requests."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        opcode: load
        for opcode, load in pickle._Unpickler.dispatch.items()
        if opcode not in (pickle.EMPTY_SET[0], pickle.ADDITEMS[0], pickle.FROZENSET[0])
    }

    def _put(self, target: object, items: list[Any]) -> None:
        """Fill a dictionary; hashing deeply nested tuples as keys would overflow the stack."""
        if not isinstance(target, dict) or not all(isinstance(key, str | bytes | int) for key in items[::2]):
            raise pickle.UnpicklingError("a dictionary key that is neither text nor a number")
        target.update(zip(items[::2], items[1::2], strict=True))

    def load_build(self: Any) -> None:
        """Set the state of an array or a type only: functions have attributes, too."""
        if not isinstance(self.stack[-2], _Array | _Type):
            raise pickle.UnpicklingError("a state of an object that must not have one")
        pickle._Unpickler.dispatch[pickle.BUILD[0]](self)

    def load_dict(self: Any) -> None:
        """Create a dictionary of all items on the stack since the mark."""
        items = self.pop_mark()
        self.append({})
        self._put(self.stack[-1], items)

    def load_setitem(self: Any) -> None:
        """Add one entry."""
        value, key = self.stack.pop(), self.stack.pop()
        self._put(self.stack[-1], [key, value])

    def load_setitems(self: Any) -> None:
        """Add all entries since the mark."""
        items = self.pop_mark()
        self._put(self.stack[-1], items)

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"calls of {module}.{name} are not allowed") from None


def read_pickle(path: Path) -> Any:
    """Read a pickle of plain containers, strings, numbers and NumPy arrays; refuse anything else.

    Strings of Python 2 (CIFAR's files) are decoded as latin-1 text.
    """
    try:
        content = read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror}") from error
    try:
        return _Restricted(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # corrupt pickles raise many kinds of errors
        raise FedotpError(f"{path} is not a pickle that can be read safely: {one_line(error)}") from error
