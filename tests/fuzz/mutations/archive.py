"""Mutations of zip archives: PyTorch's, NumPy's, TorchScript's."""

import io
import random
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from flwr.app import ConfigRecord, MetricRecord
from flwr.common.serde import (
    config_record_from_proto,
    config_record_to_proto,
    metric_record_from_proto,
    metric_record_to_proto,
)
from flwr.proto.recorddict_pb2 import ConfigRecord as ProtoConfigRecord
from flwr.proto.recorddict_pb2 import MetricRecord as ProtoMetricRecord

from fuzz.mutations import raw, text

BOMB_BYTES = 1200 << 20
_BLOCK = 1 << 20
_STORED, _DEFLATED = 0, 8
_NAMES = ("../../intruder", "/intruder", "", "a" * 60_000, "\0", "archive/../../intruder", "archive/data.pkl", "x/y/z")


class _Intruder(torch.nn.Module):
    """TorchScript that writes a file where it is loaded."""

    @torch.jit.export
    def __getstate__(self) -> tuple[torch.Tensor, bool]:
        return torch.zeros(1), self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]) -> None:
        self.training = state[1]
        torch.save(state[0], "intruder-was-here")


@dataclass(frozen=True)
class Entry:
    """A member of an archive: what is stored, and what is said of it."""

    name: str
    packed: bytes
    crc: int
    size: int
    method: int = _STORED


def is_zip(content: bytes) -> bool:
    """Whether the members can be listed."""
    return content.startswith(b"PK\x03\x04") and bool(_entries(content))


def mutate_zip(content: bytes, rng: random.Random, within: Callable[[bytes, random.Random], bytes]) -> bytes:
    """A member mutated under a right checksum, one that lies of its size, unfolds, is there twice or elsewhere."""
    entries = _entries(content)
    at = rng.randrange(len(entries))
    if rng.random() < 0.5:  # what is read first
        at = next((i for i, entry in enumerate(entries) if entry.name.endswith(".pkl")), at)
    entry = entries[at]
    what = rng.random()
    if what < 0.6:
        entries[at] = stored(entry.name, within(entry.packed, rng))
    elif what < 0.7:
        size = rng.choice((0, 1, entry.size + 1, 2**31, 2**32 - 2))
        entries[at] = replace(entry, size=size, crc=rng.choice((entry.crc, 0)))
    elif what < 0.73:
        entries[at] = Entry(entry.name, bomb(), _bomb_crc(), BOMB_BYTES, _DEFLATED)
    elif what < 0.8:
        entries[at] = replace(entry, name=rng.choice(_NAMES))
    elif what < 0.85:
        entries.insert(rng.randrange(len(entries)), replace(entry, packed=within(entry.packed, rng)))
    elif what < 0.9:
        del entries[at]
    elif what < 0.95:
        return intrusion()
    else:
        return raw.mutate(content, rng)
    return zipped(entries)


def stored(name: str, content: bytes) -> Entry:
    """A member as it should be."""
    return Entry(name, content, zlib.crc32(content), len(content))


def zipped(entries: list[Entry]) -> bytes:
    """An archive that says of its members what they say themselves, true or not."""
    out, directory = io.BytesIO(), io.BytesIO()
    for entry in entries:
        name = entry.name.encode()
        said = struct.pack("<HHHHHIII", 20, 0x800, entry.method, 0, 33, entry.crc, len(entry.packed), entry.size)
        directory.write(b"PK\x01\x02" + struct.pack("<H", 20) + said)
        directory.write(struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, out.tell()) + name)
        padding = -(out.tell() + 30 + len(name) + 4) % 64  # as PyTorch aligns its tensors
        extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        out.write(b"PK\x03\x04" + said + struct.pack("<HH", len(name), len(extra)) + name + extra + entry.packed)
    start, size, n = out.tell(), directory.tell(), len(entries)
    return out.getvalue() + directory.getvalue() + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, n, n, size, start, 0)


@cache
def intrusion() -> bytes:
    """An archive that runs code where TorchScript reads it."""
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(_Intruder()), out)
    return out.getvalue()


@cache
def bomb() -> bytes:
    """1.2 GB of zeros in 1.2 MB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(_BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * (BOMB_BYTES // _BLOCK) + b"\x03\x00"  # an empty last block


@cache
def _bomb_crc() -> int:
    crc = 0
    for _ in range(BOMB_BYTES // _BLOCK):
        crc = zlib.crc32(bytes(_BLOCK), crc)
    return crc


def _entries(content: bytes) -> list[Entry]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return [
                stored(info.filename, archive.read(info)) for info in archive.infolist() if info.file_size < _BLOCK * 64
            ]
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zlib.error):
        return []


_KINDS = (b"Message ", b"RecordDict ", b"ArrayRecord ", b"Array ", b"ArrayChunk ", b"ConfigRecord ", b"MetricRecord ")
_NUMBERS: tuple[int | float, ...] = (0, 1, -1, 2, 10**9, 2**63 - 1, -(2**63), 0.5, 1e300, -1e300, 1e-300)
_NUMBERS += (float("nan"), float("inf"), -float("inf"))
_TEXTS = ("", "x", "\0", "\x1b[2J\u202e", "a\nb", "site-1", "../../intruder", "long " * 20_000)
_LISTS: tuple[Any, ...] = ([], [1, 2], [0.5] * 3, ["a", "a"], [""], ["\x1b"], ["x"] * 100_000, [True], [2**63 - 1])
_BYTES = (b"", b"\x80\x02.", bytes(1000))


def is_object(content: bytes) -> bool:
    """Whether this is one of Flower's objects."""
    return content.startswith(_KINDS) and b"\0" in content


def mutate_message(content: bytes, rng: random.Random, within: Callable[[bytes, random.Random], bytes]) -> bytes:
    """Mostly the body mutated under a head that fits; else the head."""
    head, _, body = content.partition(b"\0")
    kind, rest = head.split(b" ", 1)
    what = rng.random()
    if what < 0.1:
        return text.mutate_lines(head, rng) + b"\0" + body
    if what < 0.15:
        return head.replace(kind, rng.choice(_KINDS).strip()) + b"\0" + body
    if kind in (b"ConfigRecord", b"MetricRecord") and what < 0.85:
        body = _other_values(kind, body, rng)
    else:
        body = within(body, rng)
    children = rest.rpartition(b" ")[0]
    return kind + b" " + children + b" " + str(len(body)).encode() + b"\0" + body


def _other_values(kind: bytes, body: bytes, rng: random.Random) -> bytes:
    """A record in which one value is another, or missing, or under another name."""
    record: Any = (
        config_record_from_proto(ProtoConfigRecord.FromString(body))
        if kind == b"ConfigRecord"
        else metric_record_from_proto(ProtoMetricRecord.FromString(body))
    )
    values = dict(record)
    key = rng.choice(sorted(values)) if values else "intruder"
    old = values.pop(key, None)
    if isinstance(old, str) and text.is_json(old.encode(errors="surrogatepass")) and rng.random() < 0.8:
        values[key] = text.mutate_json(old.encode(), rng).decode(errors="replace")
    elif rng.random() < 0.8:
        pool = _NUMBERS if kind == b"MetricRecord" else rng.choice((_NUMBERS, _TEXTS, _LISTS, _BYTES))
        values[key] = rng.choice(pool)
    elif rng.random() < 0.5:
        values["intruder"] = 1 if old is None else old
    if kind == b"ConfigRecord":
        return config_record_to_proto(ConfigRecord(values)).SerializeToString()
    return metric_record_to_proto(MetricRecord(values)).SerializeToString()
