"""The token store: what the image tower said of every crop of every image, kept on disk for ever after.

Any number of processes may read and write one store at once: each writes a shard of its own and reads the
shards of all. See `_format` for the layout.
"""

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedotp._files import cache_folder
from fedotp.data._types import Ints
from fedotp.data.store._format import KEY, Encoding, Keys, Records, intact
from fedotp.data.store._parallel import in_pieces
from fedotp.data.store._shard import INDEX_SUFFIX, Shard, ShardWriter
from fedotp.errors import FedotpError

DESCRIPTION = "encoding.json"
_LOCATED = np.dtype([("key", KEY), ("crc", "<u4"), ("shard", "<i4"), ("row", "<i8")])


def default_store() -> Path:
    """Return where tokens are kept: `$FEDOTP_CACHE/tokens`, else `fedotp/tokens` in the user's cache."""
    return cache_folder() / "tokens"


class TokenStore:
    """The records of one encoding. A record is known by its number, which holds for this object only."""

    def __init__(self, root: Path, encoding: Encoding) -> None:
        """Open the folder of `encoding` below `root`, making it if it is not there."""
        self.encoding = encoding
        self.folder = root / encoding.fingerprint
        self._shards: dict[str, Shard] = {}
        self._writer: ShardWriter | None = None
        self._first = threading.Lock()  # to write anything
        self._parts: list[NDArray[np.void]] = []
        self._table = np.zeros(0, _LOCATED)  # record number -> key, checksum, shard, row
        self._order = np.zeros(0, np.int64)  # record numbers in order of their keys
        with self._explained("cannot be opened"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._describe()
            self.refresh()

    def __repr__(self) -> str:
        return f"<TokenStore in {self.folder}>"

    def refresh(self) -> Keys:
        """Take in what was written since the last look, by anyone; return the new keys (n,)."""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(INDEX_SUFFIX) and name not in self._shards:
                shard = Shard(self.folder / name, self.encoding)
                if shard.usable:
                    self._shards[name] = shard
        news = [np.zeros(0, _LOCATED)]
        for number, shard in enumerate(self._shards.values()):
            first, entries = shard.n_seen, shard.new_entries()
            good = intact(entries)
            part = np.zeros(len(good), _LOCATED)
            part["key"], part["crc"] = entries["key"][good], entries["record_crc"][good]
            part["shard"], part["row"] = number, first + good
            news.append(part)
        new = np.concatenate(news)
        self._parts.append(new)
        return np.ascontiguousarray(new["key"])

    def find(self, keys: Keys) -> Ints:
        """The numbers of the records with these keys (...), -1 where there is none."""
        self._sort_in()
        if not len(self._table):
            return np.full(keys.shape, -1, np.int64)
        in_order = self._table["key"][self._order]
        nearest = self._order[np.searchsorted(in_order, keys).clip(max=len(in_order) - 1)]
        return np.where(self._table["key"][nearest] == keys, nearest, -1)

    def keys(self, numbers: Ints) -> Keys:
        """The keys of the records with these numbers (...)."""
        return np.ascontiguousarray(self._table["key"][numbers])

    def append(self, keys: Keys, records: Records) -> None:
        """Write records (n,) under their keys (n,); they are found after the next `refresh`. Any thread may."""
        with self._explained("cannot be written"):
            with self._first:
                if self._writer is None:
                    self._writer = ShardWriter(self.folder, self.encoding)
            self._writer.append(keys, records)

    def gather(self, numbers: Ints) -> Records:
        """The records (...) with these numbers (...)."""
        records = np.empty(numbers.size, self.encoding.record)
        shards, rows = self._table["shard"][numbers.ravel()], self._table["row"][numbers.ravel()]
        for number in np.unique(shards):
            mapped = list(self._shards.values())[number].mapped()
            at = np.flatnonzero(shards == number)
            if len(at) == len(records):  # as good as always
                deque(in_pieces(partial(_take, mapped, rows, records), len(records), records.itemsize), maxlen=0)
            else:
                records[at] = mapped[rows[at]]
        return records.reshape(numbers.shape)

    def gather_field(self, numbers: Ints, name: str) -> NDArray[Any]:
        """One field (..., *shape of the field) of the records with these numbers (...); nothing else is read."""
        field = self.encoding.record[name]
        values = np.empty((numbers.size, *field.shape), field.base)
        shards, rows = self._table["shard"][numbers.ravel()], self._table["row"][numbers.ravel()]
        for number in np.unique(shards):
            at = np.flatnonzero(shards == number)
            values[at] = list(self._shards.values())[number].mapped()[name][rows[at]]
        return values.reshape(*numbers.shape, *field.shape)

    def check(self, numbers: Ints) -> Iterator[tuple[int, Ints]]:
        """Compare records (n,) with their checksums: how many were looked at, and the damaged among them."""
        for number, shard in enumerate(self._shards.values()):
            mine = np.sort(numbers[self._table["shard"][numbers] == number])
            yield from (
                (len(bad), mine[part][bad])
                for part, bad in shard.damaged(self._table["row"][mine], self._table["crc"][mine])
            )

    def drop(self, numbers: Ints) -> None:
        """Strike records out, here and on disk, so that they are never found again."""
        if not len(numbers):
            return
        with self._explained("a damaged record cannot be struck out"):
            for number, shard in enumerate(self._shards.values()):
                mine = numbers[self._table["shard"][numbers] == number]
                if len(mine):
                    shard.drop(self._table["row"][mine])
        self._table["key"][numbers] = b""
        self._order = np.argsort(self._table["key"], kind="stable")

    def close(self) -> None:
        """Stop writing; reading goes on."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _sort_in(self) -> None:
        if any(len(part) for part in self._parts):
            self._table = np.concatenate([self._table, *self._parts])
            self._order = np.argsort(self._table["key"], kind="stable")
        self._parts = []

    def _describe(self) -> None:
        """Say what is in the folder; the time of the description is the time of the last use."""
        description, text = self.folder / DESCRIPTION, self.encoding.to_json()
        if not description.is_file() or description.read_bytes() != text.encode():
            unfinished = self.folder / f"{DESCRIPTION}.{os.getpid()}"
            unfinished.write_bytes(text.encode())
            os.replace(unfinished, description)
        with suppress(OSError):  # a store that belongs to someone else can still be read
            os.utime(description)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FedotpError(
                f"the token store {self.folder} {what}: {error.strerror}; "
                "make room or rights there, or choose another folder"
            ) from error


def _take(mapped: Records, rows: Ints, records: Records, part: slice) -> None:
    np.take(mapped, rows[part], out=records[part], mode="clip")  # not "raise", which copies once more
