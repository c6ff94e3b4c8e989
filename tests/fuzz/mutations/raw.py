"""Mutations of bytes, whatever they mean."""

import random
import struct

_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
_SIZES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def mutate(content: bytes, rng: random.Random) -> bytes:
    """One of the mutations below."""
    return rng.choice((flip, flip, cut, number, number, splice, remove, fill, insert))(content, rng)


def place(content: bytes, rng: random.Random) -> int:
    """A position, in half the cases near the beginning, where headers are."""
    end = len(content) if rng.random() < 0.5 else min(len(content), 256)
    return rng.randrange(end + 1)


def flip(content: bytes, rng: random.Random) -> bytes:
    """Flip one to eight bits."""
    changed = bytearray(content or b"\0")
    for _ in range(rng.randint(1, 8)):
        changed[min(place(changed, rng), len(changed) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(content: bytes, rng: random.Random) -> bytes:
    """Cut short, perhaps to nothing."""
    return content[: place(content, rng)]


def number(content: bytes, rng: random.Random) -> bytes:
    """Write a number that lengths and counts stumble over."""
    size = rng.choice(tuple(_SIZES))
    value = rng.choice(_NUMBERS) % 2 ** (8 * size)
    at = place(content, rng)
    return content[:at] + struct.pack(rng.choice("<>") + _SIZES[size], value) + content[at + size :]


def splice(content: bytes, rng: random.Random) -> bytes:
    """Copy a part to another place."""
    start, at = place(content, rng), place(content, rng)
    return content[:at] + content[start : start + rng.randint(1, 4096)] + content[at:]


def remove(content: bytes, rng: random.Random) -> bytes:
    """Leave a part out."""
    at = place(content, rng)
    return content[:at] + content[at + rng.randint(1, 64) :]


def fill(content: bytes, rng: random.Random) -> bytes:
    """Overwrite a part with one value."""
    at, size = place(content, rng), rng.randint(1, 256)
    return content[:at] + bytes([rng.choice((0, 0xFF, 0x20))]) * size + content[at + size :]


def insert(content: bytes, rng: random.Random) -> bytes:
    """Put random bytes in."""
    at = place(content, rng)
    return content[:at] + rng.randbytes(rng.randint(1, 64)) + content[at:]
