"""Mutations of safetensors and of NumPy's files."""

import json
import random
import re
import struct
import zlib

import safetensors.torch
import torch

from fuzz.mutations import raw, text
from fuzz.mutations.archive import bomb

_SHAPES = ((), (0,), (1,), (3,), (0, 7), (2, 2, 2), (1,) * 60, (2**20, 3))
_TYPES = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64)
_BAD = (float("nan"), float("inf"), -float("inf"), 3e38, 0.0, -1.0)
_HEADERS = (
    rb"(2305843009213693952,)", rb"(99999999999, 99999999999)", rb"(-1,)", rb"()", rb"(0,)", rb"(1,)", rb"(2, 3, 4)",
    rb"(1.5,)", rb"(True,)", rb"'x'", rb"(" * 100 + rb")" * 100,
)  # fmt: skip
_DESCR = (b"'|O'", b"'<U9'", b"'<f2'", b"'>f8'", b"'<i8'", b"'|V4'", b"'<c16'", b"'<M8[s]'")
_DESCR += (b"[('a', '<f8'), ('b', '|O')]",)


def is_safetensors(content: bytes) -> bool:
    """Eight bytes of length, then JSON."""
    return content[8:9] == b"{" and 8 + int.from_bytes(content[:8], "little") <= len(content)


def is_npy(content: bytes) -> bool:
    """A file of `numpy.save`."""
    return content.startswith(b"\x93NUMPY")


def mutate_safetensors(content: bytes, rng: random.Random) -> bytes:
    """Another header, or other tensors under a right one."""
    end = 8 + int.from_bytes(content[:8], "little")
    header, values = content[8:end], content[end:]
    what = rng.random()
    if what < 0.45:
        return _with_header(text.mutate_json(header, rng), values)
    if what < 0.6:
        return _other_notes(header, values, rng)
    if what < 0.9:
        return _other_tensors(content, rng)
    if what < 0.95:
        return struct.pack("<Q", rng.choice((0, 1, 2**31, 2**63, 2**64 - 1, len(content)))) + content[8:]
    return _with_header(raw.mutate(header, rng), values)


def _with_header(header: bytes, values: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + values


def _other_notes(header: bytes, values: bytes, rng: random.Random) -> bytes:
    """One of the notes in the header mutated by its own format."""
    tree = json.loads(header)
    notes = tree.get("__metadata__") if isinstance(tree, dict) else None
    if not isinstance(notes, dict) or not notes:
        return _with_header(text.mutate_json(header, rng), values)
    key = rng.choice(sorted(notes))
    note = str(notes[key]).encode(errors="surrogatepass")
    changed = text.mutate_json(note, rng) if text.is_json(note) else text.mutate_lines(note or b"x", rng)
    notes[key] = changed.decode(errors="replace")
    return _with_header(json.dumps(tree).encode(), values)


def _other_tensors(content: bytes, rng: random.Random) -> bytes:
    """One tensor left out, renamed, of another shape or type, or with values that are no numbers."""
    tensors = safetensors.torch.load(content)
    notes = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__")
    name = rng.choice(sorted(tensors))
    old = tensors.pop(name)
    what = rng.randrange(6)
    if what == 1:
        tensors[rng.choice((f"{name}.x", name.swapcase(), "", "a.b", "9.shared", "99999999999999999999.x", "²"))] = old
    elif what == 2:
        tensors[name] = torch.zeros(rng.choice(_SHAPES), dtype=old.dtype)
    elif what == 3:
        tensors[name] = old.to(rng.choice(_TYPES))
    elif what == 4:
        number = rng.choice(_BAD) if old.is_floating_point() else rng.choice((-1, 1, 100))
        tensors[name] = torch.full(old.shape, number).to(old.dtype)
    elif what == 5:
        tensors |= {name: old, "intruder": old.clone()}
    notes = {str(key): str(value) for key, value in notes.items()} if isinstance(notes, dict) else None
    return bytes(safetensors.torch.save({key: value.contiguous() for key, value in tensors.items()}, notes))


def mutate_npy(content: bytes, rng: random.Random) -> bytes:
    """Another type or shape in the header, which keeps its length, or other values."""
    size = int.from_bytes(content[8:10], "little")
    header, values = content[10 : 10 + size], content[10 + size :]
    what = rng.random()
    if what < 0.4:
        header = re.sub(rb"\([^)]*\)", lambda _: rng.choice(_HEADERS), header, count=1)
    elif what < 0.7:
        header = re.sub(rb"'[<>|][^']*'", lambda _: rng.choice(_DESCR), header, count=1)
    elif what < 0.9:
        values = struct.pack("<d", rng.choice(_BAD)) * (len(values) // 8) + values[: len(values) % 8]
    else:
        return raw.mutate(content, rng)
    header = header.rstrip().ljust(size - 1) + b"\n"
    return content[:8] + len(header).to_bytes(2, "little") + header + values


_HEADER = 128
_MOST = 1 << 20


def is_mat(content: bytes) -> bool:
    """A level 5 file."""
    return content[126:128] == b"IM"


def mutate_mat(content: bytes, rng: random.Random) -> bytes:
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
