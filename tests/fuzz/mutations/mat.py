"""Mutations of MATLAB's files."""

import random
import struct
import zlib

from fuzz.mutations import raw
from fuzz.mutations.archive import bomb

_HEADER = 128
_MOST = 1 << 20


def is_mat(content: bytes) -> bool:
    """A level 5 file."""
    return content[126:128] == b"IM"


def mutate(content: bytes, rng: random.Random) -> bytes:
    """The first element mutated where it is not compressed, or within, or blown up."""
    header, rest = content[:_HEADER], content[_HEADER:]
    if len(rest) < 8:
        return raw.mutate(content, rng)
    kind, size = struct.unpack("<II", rest[:8])
    if rng.random() < 0.1:
        packed = b"\x78\x01" + bomb()  # the checksum at its end is never reached
        return header + struct.pack("<II", 15, len(packed)) + packed
    body = zlib.decompressobj().decompress(rest[8 : 8 + size], _MOST) if kind == 15 else rest
    body = raw.mutate(body, rng)
    if rng.random() < 0.1:
        for _ in range(rng.choice((2, 2000))):  # compressed within compressed
            packed = zlib.compress(body, 1)
            body = struct.pack("<II", 15, len(packed)) + packed
        return header + body
    packed = zlib.compress(body)
    return header + (struct.pack("<II", 15, len(packed)) + packed if kind == 15 else body)
