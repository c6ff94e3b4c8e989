"""The part of MATLAB's level 5 file format that Oxford's flower labels use: numeric matrices."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedotp._files import read_regular
from fedotp.data._types import Ints
from fedotp.errors import FedotpError

# https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf, tables 1-1 and 1-3
_NUMERIC = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_HEADER_BYTES = 128
_MOST_BYTES = 16 << 20  # of the file, and of each variable unpacked: the flowers' labels have 15 kB


def read_mat(path: Path) -> dict[str, Ints]:
    """Read the numeric variables of a MAT file, flattened to whole numbers: name -> (n,)."""
    try:
        content = read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise FedotpError(f"cannot read {path}: {error.strerror}") from error
    try:
        if content[126:128] != b"IM":
            raise ValueError("no little-endian MAT 5 header")
        return dict(_variable(body) for kind, body in _unpacked(content[_HEADER_BYTES:]) if kind == _MATRIX)
    except (ValueError, KeyError, IndexError, struct.error, zlib.error, UnicodeDecodeError) as error:
        raise FedotpError(f"{path} is not a MAT 5 file of numbers: {error}") from error


def _unpacked(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The (type, body) elements of a file; compressed ones are opened."""
    for kind, body in _elements(data):
        if kind != _COMPRESSED:
            yield kind, body
            continue
        unpacking = zlib.decompressobj()
        unpacked = unpacking.decompress(body, _MOST_BYTES)
        if not unpacking.eof:
            raise ValueError("a variable is cut short or far too large")
        yield from _elements(unpacked)


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Split into (type, body) elements."""
    found, at = [], 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:  # small element: size and type share one word, the body is the next
            size, kind = kind >> 16, kind & 0xFFFF
            found.append((kind, data[at + 4 : at + 4 + size]))
            at += 8
            continue
        body = data[at + 8 : at + 8 + size]
        if len(body) < size:
            raise ValueError("it is cut short")
        found.append((kind, body))
        at += 8 + (size if kind == _COMPRESSED else (size + 7) // 8 * 8)
    return found


def _variable(body: bytes) -> tuple[str, Ints]:
    """Read one matrix: array flags, dimensions, name, real part."""
    _, _, (_, name), (kind, values) = _elements(body)[:4]
    return name.decode("ascii"), np.frombuffer(values, "<" + _NUMERIC[kind]).astype(np.int64)
