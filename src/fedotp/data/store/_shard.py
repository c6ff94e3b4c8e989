"""One shard: a file of records and the index that says which of them count."""

import secrets
import threading
from collections.abc import Iterator
from io import FileIO
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedotp.data._types import Ints
from fedotp.data.store._format import (
    ENTRY,
    HEADER_SIZE,
    INDEX_MAGIC,
    RECORDS_MAGIC,
    Encoding,
    Keys,
    Records,
    checksums,
    make_entries,
)
from fedotp.data.store._parallel import in_pieces

INDEX_SUFFIX, RECORDS_SUFFIX = ".index", ".records"


class ShardWriter:
    """Appends to a shard of its own, so that writers never meet.

    Records are written before their entries. What was cut off in between has no entry and does not count;
    what reached the disk out of order, as in a power failure, has an entry whose checksum does not fit.
    """

    def __init__(self, folder: Path, encoding: Encoding) -> None:
        """Make an empty shard under a new random name."""
        stem = folder / secrets.token_hex(8)
        self._encoding = encoding
        self._count = 0
        self._turn = threading.Lock()
        self._records = FileIO(stem.with_suffix(RECORDS_SUFFIX), "x")
        self._index = FileIO(stem.with_suffix(INDEX_SUFFIX), "x")
        _write(self._records, 0, encoding.header(RECORDS_MAGIC))
        _write(self._index, 0, encoding.header(INDEX_MAGIC))

    def append(self, keys: Keys, records: Records) -> None:
        """Write records (n,) under their keys (n,); any thread may do so."""
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
    """A shard to be read, possibly while another process appends to it."""

    def __init__(self, index: Path, encoding: Encoding) -> None:
        """Open the shard with this index file; `usable` tells whether both files are what they should be."""
        self._index = index
        self._records = index.with_suffix(RECORDS_SUFFIX)
        self._encoding = encoding
        self.n_seen = 0  # records known so far
        self._map: np.memmap[tuple[int], np.dtype[np.void]] | None = None
        self.usable = _begins(index, encoding.header(INDEX_MAGIC)) and _begins(
            self._records, encoding.header(RECORDS_MAGIC)
        )

    def new_entries(self) -> NDArray[np.void]:
        """The entries (n,) that came since the last call; only those whose record is in the file."""
        n_records = (self._records.stat().st_size - HEADER_SIZE) // self._encoding.record.itemsize
        n_entries = (self._index.stat().st_size - HEADER_SIZE) // ENTRY.itemsize
        count = max(min(n_records, n_entries) - self.n_seen, 0)
        entries = np.fromfile(self._index, ENTRY, count=count, offset=HEADER_SIZE + self.n_seen * ENTRY.itemsize)
        self.n_seen += len(entries)
        return entries

    def damaged(self, rows: Ints, record_crcs: NDArray[np.uint32]) -> Iterator[tuple[slice, NDArray[np.bool_]]]:
        """Check records against their checksums: pieces of a mask over `rows` (n,).

        They are read and not mapped, so that checking a large store does not fill the process's memory.
        """

        def look(part: slice) -> NDArray[np.bool_]:
            return checksums(self._read(rows[part])) != record_crcs[part]

        return in_pieces(look, len(rows), self._encoding.record.itemsize)

    def _read(self, rows: Ints) -> Records:
        """The records (n,) in these rows; what is not there is zero."""
        records = np.zeros(len(rows), self._encoding.record)
        ends = np.flatnonzero(np.diff(rows, append=-1) != 1) + 1
        with FileIO(self._records) as file:
            for start, end in pairwise([0, *ends.tolist()]):  # rows that lie one after the other
                rest = records[start:end].view(np.uint8).data
                file.seek(HEADER_SIZE + int(rows[start]) * records.itemsize)
                while rest and (n := file.readinto(rest)):
                    rest = rest[n:]
        return records

    def drop(self, rows: Ints) -> None:
        """Strike the entries of these records out; the bytes stay, unused."""
        with self._index.open("r+b", buffering=0) as file:
            for row in rows:
                _write(file, HEADER_SIZE + int(row) * ENTRY.itemsize, bytes(ENTRY.itemsize))

    def mapped(self) -> Records:
        """The records (n,) seen so far, mapped into memory."""
        if self._map is None or len(self._map) < self.n_seen:
            self._map = np.memmap(self._records, self._encoding.record, "r", offset=HEADER_SIZE, shape=(self.n_seen,))
        return self._map


def _begins(path: Path, header: bytes) -> bool:
    if not path.is_file():  # a pipe would be waited for
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(header)) == header
    except OSError:
        return False
