"""Read other people's pickles without running other people's code.

A pickle is a program: it names functions, and calls them with what it likes. Here it finds stand-ins only, which make
arrays of numbers and strings and check what they are given; NumPy's own functions trust their arguments.
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
_MOST_BYTES = 512 << 20  # of a file: CIFAR-100's training images take 155 MB
_MOST_VALUES = 1 << 28  # of an array: CIFAR has 2^27 pixels in one file


class _Type:
    """Stand in for `numpy.dtype`: the type it names, in the byte order its state says."""

    def __init__(self, code: str, align: object = False, copy: object = False) -> None:
        if not isinstance(code, str) or not _PLAIN.fullmatch(code):
            raise pickle.UnpicklingError(f"an array of type {str(code)[:40]!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])
        if state[5] > self.dtype.itemsize and self.dtype.kind in "SU":  # the code may be without its length
            self.dtype = np.dtype(f"{state[1]}{self.dtype.kind}{state[5] // np.dtype(f'{self.dtype.kind}1').itemsize}")


class _Array(np.ndarray[Any, np.dtype[Any]]):
    """An array that checks its state before it takes it."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, in_columns, content = state
        n_values = math.prod(shape)
        if not isinstance(kind, _Type) or min(shape, default=0) < 0 or n_values > _MOST_VALUES:
            raise pickle.UnpicklingError(f"an array of shape {str(shape)[:40]}")
        n_there = len(content) if kind.dtype.hasobject else len(content) // max(kind.dtype.itemsize, 1)
        if n_there != n_values or isinstance(content, list) != kind.dtype.hasobject:
            raise pickle.UnpicklingError(f"an array of {n_values} values that has {n_there}")
        super().__setstate__((1, shape, kind.dtype, bool(in_columns), content))  # type: ignore[arg-type]


def _reconstruct(kind: object, shape: object, typecode: object) -> _Array:
    """Stand in for NumPy's: an empty array, which its state then fills."""
    return np.empty(0).view(_Array)


def _scalar(kind: _Type, content: bytes) -> Any:
    """Stand in for NumPy's."""
    if kind.dtype.hasobject or len(content) != kind.dtype.itemsize:
        raise pickle.UnpicklingError("a number of the wrong length")
    return np.frombuffer(content, kind.dtype)[0]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Stand in for `_codecs.encode`: protocol 2 stores bytes as latin-1 text, no other codec is needed."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"codec {encoding!r}")
    return text.encode("latin1")


# Everything a pickled array of numbers or strings needs, under NumPy 1's and NumPy 2's module names.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): "ndarray",  # only ever an argument of _reconstruct, and not to be called
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
}


class _Restricted(pickle._Unpickler):
    """The unpickler in Python: the one in C makes room for as many memories as a pickle says it has."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        opcode: load
        for opcode, load in pickle._Unpickler.dispatch.items()
        if opcode not in (pickle.EMPTY_SET[0], pickle.ADDITEMS[0], pickle.FROZENSET[0])
    }

    def _put(self, target: object, items: list[Any]) -> None:
        """Fill a dictionary; to hash a tuple within a tuple within a tuple overflows the stack of the process."""
        if not isinstance(target, dict) or not all(isinstance(key, str | bytes | int) for key in items[::2]):
            raise pickle.UnpicklingError("a dictionary whose keys are no words")
        target.update(zip(items[::2], items[1::2], strict=True))

    def load_build(self: Any) -> None:
        """Give a state to an array or a type, and to nothing else: functions have attributes, too."""
        if not isinstance(self.stack[-2], _Array | _Type):
            raise pickle.UnpicklingError("a state for what has none")
        pickle._Unpickler.dispatch[pickle.BUILD[0]](self)

    def load_dict(self: Any) -> None:
        """Make a dictionary of all that is on the stack since the mark."""
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
