"""File format of the token store's shards: files of records, and indices of valid ones.

    <root>/<fingerprint>/encoding.json    the encoding of the records: backbone, transform, storage, shapes
    <root>/<fingerprint>/<shard>.records  64 bytes of header, then records of a fixed size
    <root>/<fingerprint>/<shard>.index    64 bytes of header, then one entry per record, in the same order

A header consists of 32 bytes of magic and the folder's fingerprint. An entry consists of the key of the record (its
image and crop), the checksum of the record, and the checksum of the entry itself. The fingerprint is the SHA-256 of the
facts in `encoding.json`, so that records of different weights, transforms or shapes are in different folders.
"""

import hashlib
import json
import secrets
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from fedotp._system import n_cores
from fedotp.data._types import Ints
from fedotp.data.store import Storage
from fedotp.errors import FedotpError

Digests = NDArray[np.bytes_]  # (n,) SHA-256 of the content of images, as S32
Keys = NDArray[np.bytes_]  # (n,) keys of records, as S48
Records = NDArray[np.void]  # (n,) records, with the fields of `Encoding.record`

DIGEST = np.dtype("S32")
KEY = np.dtype("S48")
ENTRY = np.dtype([("key", KEY), ("record_crc", "<u4"), ("entry_crc", "<u4")])
HEADER_SIZE = 64
_MOST_VALUES = 1 << 28  # in a record
RECORDS_MAGIC = b"fedotp token records 1\n".ljust(32)
INDEX_MAGIC = b"fedotp token index 1\n".ljust(32)

_KEY_PARTS = np.dtype([("digest", DIGEST), ("seed", "<u8"), ("crop", "<u8")])


@dataclass(frozen=True)
class Encoding:
    """Encoding of images as records.

    `backbone` is the digest of the weights, `tower` the configuration of the image tower as JSON, `transform` the spec
    of the transform, `precision` the number format of the tower; `n_patches` (V) and `width` (e) are the shape of an
    image's tokens.
    """

    backbone: str
    tower: str
    transform: str
    precision: str
    storage: Storage
    n_patches: int
    width: int

    def __post_init__(self) -> None:
        if self.storage not in get_args(Storage):
            raise FedotpError(f"storage = {self.storage!r}: must be {' or '.join(get_args(Storage))}")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all fields, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @cached_property
    def record(self) -> np.dtype[np.void]:
        """Type of a record: pooled (e,) and tokens (V, e), for int8 with the scale (V,) of each token."""
        pooled = ("pooled", "<f2", (self.width,))
        if self.storage == "float16":
            return np.dtype([pooled, ("tokens", "<f2", (self.n_patches, self.width))])
        return np.dtype([pooled, ("step", "<f4", (self.n_patches,)), ("tokens", "i1", (self.n_patches, self.width))])

    def header(self, magic: bytes) -> bytes:
        """Return the first `HEADER_SIZE` bytes of a file of this encoding."""
        return magic + bytes.fromhex(self.fingerprint)

    def to_json(self) -> str:
        """Return canonical JSON for `from_json`."""
        return json.dumps({"format": 1, **asdict(self)}, sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Encoding":
        """Parse the JSON of `to_json`."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.pop("format") != 1:
                raise ValueError("written by another version of fedotp")
            encoding = cls(**fields)
            texts = (encoding.backbone, encoding.tower, encoding.transform, encoding.precision)
            sizes = (encoding.n_patches, encoding.width)
            if not all(isinstance(value, str) for value in texts) or not all(type(size) is int for size in sizes):
                raise ValueError("a value has the wrong type")
            if min(sizes) < 1 or encoding.n_patches * encoding.width > _MOST_VALUES:
                raise ValueError(f"unsupported shape: {encoding.n_patches} patches of width {encoding.width}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FedotpError(f"not a description of a token store: {error}") from error
        return encoding


def make_keys(digests: Digests, *, seed: int, crop: int) -> Keys:
    """Return the keys of crop `crop` under `seed` of images with these digests (n,); both 0 for the central crop."""
    parts = np.zeros(len(digests), _KEY_PARTS)
    parts["digest"], parts["seed"], parts["crop"] = digests, seed, crop
    return parts.view(KEY)


def split_keys(keys: Keys) -> NDArray[np.void]:
    """Return the fields `digest`, `seed` and `crop` of keys (n,)."""
    return np.ascontiguousarray(keys).view(_KEY_PARTS)


def make_entries(keys: Keys, records: Records) -> NDArray[np.void]:
    """Return the index entries of `records` (n,)."""
    entries = np.zeros(len(keys), ENTRY)
    entries["key"] = keys
    entries["record_crc"] = checksums(records)
    entries["entry_crc"] = _entry_checksums(entries)
    return entries


def intact(entries: NDArray[np.void]) -> Ints:
    """Return the positions of the entries (n,) with correct checksums."""
    return np.flatnonzero(entries["entry_crc"] == _entry_checksums(entries))


def checksums(values: NDArray[np.void]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each of n items."""
    raw, size = values.view(np.uint8).data, values.itemsize
    return np.fromiter((zlib.crc32(raw[i * size :][:size]) for i in range(len(values))), np.uint32)


def _entry_checksums(entries: NDArray[np.void]) -> NDArray[np.uint32]:
    unsigned = entries.copy()
    unsigned["entry_crc"] = 0
    return checksums(unsigned)


INDEX_SUFFIX, RECORDS_SUFFIX = ".index", ".records"


class ShardWriter:
    """Writer that appends to its own shard, so that writers do not conflict.

    Records are written before their entries. An interrupted write has no entry and is ignored; data that reached the
    disk out of order, as in a power failure, have an entry with a wrong checksum.
    """

    def __init__(self, folder: Path, encoding: Encoding) -> None:
        """Create an empty shard with a new random name."""
        stem = folder / secrets.token_hex(8)
        self._count = 0
        self._turn = threading.Lock()
        self._records = FileIO(stem.with_suffix(RECORDS_SUFFIX), "x")
        self._index = FileIO(stem.with_suffix(INDEX_SUFFIX), "x")
        _write(self._records, 0, encoding.header(RECORDS_MAGIC))
        _write(self._index, 0, encoding.header(INDEX_MAGIC))

    def append(self, keys: Keys, records: Records) -> None:
        """Write records (n,) with their keys (n,); thread-safe."""
        entries = make_entries(keys, records)
        with self._turn:
            _write(self._records, HEADER_SIZE + self._count * records.itemsize, records.view(np.uint8).data)
            _write(self._index, HEADER_SIZE + self._count * ENTRY.itemsize, entries.view(np.uint8).data)
            self._count += len(records)

    def close(self) -> None:
        """Close both files."""
        self._records.close()
        self._index.close()


def _write(file: FileIO, offset: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    file.seek(offset)
    while rest:
        rest = rest[file.write(rest) :]


class Shard:
    """Reader of a shard, to which another process may be appending."""

    def __init__(self, index: Path, encoding: Encoding) -> None:
        """Open the shard with this index file; it is `usable` if both files have correct headers."""
        self._index = index
        self._records = index.with_suffix(RECORDS_SUFFIX)
        self._encoding = encoding
        self.n_seen = 0  # records known so far
        self._map: np.memmap[tuple[int], np.dtype[np.void]] | None = None
        headers = encoding.header(INDEX_MAGIC), encoding.header(RECORDS_MAGIC)
        self.usable = begins(index, headers[0]) and begins(self._records, headers[1])

    def new_entries(self) -> NDArray[np.void]:
        """Return the entries (n,) added since the last call whose records are in the file."""
        n_records = (self._records.stat().st_size - HEADER_SIZE) // self._encoding.record.itemsize
        n_entries = (self._index.stat().st_size - HEADER_SIZE) // ENTRY.itemsize
        count = max(min(n_records, n_entries) - self.n_seen, 0)
        entries = np.fromfile(self._index, ENTRY, count=count, offset=HEADER_SIZE + self.n_seen * ENTRY.itemsize)
        self.n_seen += len(entries)
        return entries

    def damaged(self, rows: Ints, record_crcs: NDArray[np.uint32]) -> Iterator[tuple[slice, NDArray[np.bool_]]]:
        """Verify checksums of records; yield pieces of a mask of corrupt ones over `rows` (n,).

        Records are read and not mapped, so that checking a large store does not fill the process's memory.
        """

        def look(part: slice) -> NDArray[np.bool_]:
            return checksums(self._read(rows[part])) != record_crcs[part]

        return in_pieces(look, len(rows), self._encoding.record.itemsize)

    def _read(self, rows: Ints) -> Records:
        """Read the records (n,) in these rows; missing bytes are zero."""
        records = np.zeros(len(rows), self._encoding.record)
        ends = np.flatnonzero(np.diff(rows, append=-1) != 1) + 1
        with FileIO(self._records) as file:
            for start, end in pairwise([0, *ends.tolist()]):  # consecutive rows
                rest = records[start:end].view(np.uint8).data
                file.seek(HEADER_SIZE + int(rows[start]) * records.itemsize)
                while rest and (n := file.readinto(rest)):
                    rest = rest[n:]
        return records

    def drop(self, rows: Ints) -> None:
        """Delete the entries of these records; their bytes remain unused."""
        with self._index.open("r+b", buffering=0) as file:
            for row in rows:
                _write(file, HEADER_SIZE + int(row) * ENTRY.itemsize, bytes(ENTRY.itemsize))

    def mapped(self) -> Records:
        """Return the records (n,) known so far, mapped into memory."""
        if self._map is None or len(self._map) < self.n_seen:
            self._map = np.memmap(self._records, self._encoding.record, "r", offset=HEADER_SIZE, shape=(self.n_seen,))
        return self._map


def begins(path: Path, header: bytes) -> bool:
    """True if a readable regular file begins with `header`."""
    if not path.is_file():  # opening a pipe would block
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(header)) == header
    except OSError:
        return False


T = TypeVar("T")

_MOST_THREADS = 8  # limited by the memory bandwidth
_PIECE = 4 << 20  # bytes for a thread at a time
_FEW = 8  # fewer pieces are not worth starting threads


def in_pieces(work: Callable[[slice], T], n: int, item_bytes: int) -> Iterator[tuple[slice, T]]:
    """Apply `work` to all parts of n items of `item_bytes` each; yield parts and results in order."""
    step = max(_PIECE // item_bytes, 1)
    parts = [slice(start, min(start + step, n)) for start in range(0, n, step)]
    if len(parts) < _FEW:
        yield from ((part, work(part)) for part in parts)
        return
    threads = ThreadPoolExecutor(min(n_cores(), _MOST_THREADS))
    try:
        yield from zip(parts, threads.map(work, parts), strict=True)
    finally:
        threads.shutdown(cancel_futures=True)
