"""The token store: a cache on disk of image tower outputs for every crop of every image.

Any number of processes can read and write a store at the same time: each writes its own shard and reads all shards. See
`_shard` for the layout. This module also lists and removes stores.
"""

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedotp._files import cache_folder, read_regular, write_atomically
from fedotp.data._types import Ints
from fedotp.data.store._shard import (
    ENTRY,
    INDEX_MAGIC,
    INDEX_SUFFIX,
    KEY,
    RECORDS_MAGIC,
    RECORDS_SUFFIX,
    Encoding,
    Keys,
    Records,
    Shard,
    ShardWriter,
    begins,
    in_pieces,
    intact,
    split_keys,
)
from fedotp.errors import FedotpError

DESCRIPTION = "encoding.json"
_LOCATED = np.dtype([("key", KEY), ("crc", "<u4"), ("shard", "<i4"), ("row", "<i8")])


def default_store() -> Path:
    """Return the default folder of tokens: `$FEDOTP_CACHE/tokens`, else `fedotp/tokens` in the user's cache."""
    return cache_folder() / "tokens"


class TokenStore:
    """The records of one encoding. The numbers of records are valid for this object only."""

    def __init__(self, root: Path, encoding: Encoding) -> None:
        """Open the folder of `encoding` below `root`, or create it."""
        self.encoding = encoding
        self.folder = root / encoding.fingerprint
        self._shards: dict[str, Shard] = {}
        self._writer: ShardWriter | None = None
        self._first = threading.Lock()  # for the creation of the writer
        self._parts: list[NDArray[np.void]] = []
        self._table = np.zeros(0, _LOCATED)  # record number -> key, checksum, shard, row
        self._order = np.zeros(0, np.int64)  # record numbers in order of their keys
        with self._explained("open"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._describe()
            self.refresh()

    def __repr__(self) -> str:
        return f"<TokenStore in {self.folder}>"

    def refresh(self) -> Keys:
        """Read records written since the last call by any process; return the new keys (n,)."""
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
        """Return the numbers of the records with these keys (...), -1 for missing ones."""
        if any(len(part) for part in self._parts):
            self._table = np.concatenate([self._table, *self._parts])
            self._order = np.argsort(self._table["key"], kind="stable")
        self._parts = []
        if not len(self._table):
            return np.full(keys.shape, -1, np.int64)
        in_order = self._table["key"][self._order]
        nearest = self._order[np.searchsorted(in_order, keys).clip(max=len(in_order) - 1)]
        return np.where(self._table["key"][nearest] == keys, nearest, -1)

    def keys(self, numbers: Ints) -> Keys:
        """Return the keys of the records with these numbers (...)."""
        return np.ascontiguousarray(self._table["key"][numbers])

    def append(self, keys: Keys, records: Records) -> None:
        """Write records (n,) with their keys (n,), visible after the next `refresh`; thread-safe."""
        with self._explained("write to"):
            with self._first:
                if self._writer is None:
                    self._writer = ShardWriter(self.folder, self.encoding)
            self._writer.append(keys, records)

    def gather(self, numbers: Ints, field: str = "") -> NDArray[Any]:
        """Return the records (...) with these numbers (...), or one `field` (..., *shape) without the others."""
        kind = self.encoding.record[field] if field else self.encoding.record
        found = np.empty((numbers.size, *kind.shape), kind.base)
        shards, rows = self._table["shard"][numbers.ravel()], self._table["row"][numbers.ravel()]
        for number in np.unique(shards):
            mapped = list(self._shards.values())[number].mapped()
            at = np.flatnonzero(shards == number)
            if field:
                found[at] = mapped[field][rows[at]]
            elif len(at) == len(found):  # the usual case
                deque(in_pieces(partial(_take, mapped, rows, found), len(found), found.itemsize), maxlen=0)
            else:
                found[at] = mapped[rows[at]]
        return found.reshape((*numbers.shape, *kind.shape))

    def check(self, numbers: Ints) -> Iterator[tuple[int, Ints]]:
        """Verify checksums of records (n,); yield numbers of checked records, and the corrupt ones."""
        for number, shard in enumerate(self._shards.values()):
            mine = np.sort(numbers[self._table["shard"][numbers] == number])
            yield from (
                (len(bad), mine[part][bad])
                for part, bad in shard.damaged(self._table["row"][mine], self._table["crc"][mine])
            )

    def drop(self, numbers: Ints) -> None:
        """Delete records here and on disk."""
        if not len(numbers):
            return
        with self._explained("delete a corrupt record of"):
            for number, shard in enumerate(self._shards.values()):
                mine = numbers[self._table["shard"][numbers] == number]
                if len(mine):
                    shard.drop(self._table["row"][mine])
        self._table["key"][numbers] = b""
        self._order = np.argsort(self._table["key"], kind="stable")

    def close(self) -> None:
        """Close the writer; reading remains possible."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _describe(self) -> None:
        """Write the description of the folder; its modification time is the time of last use."""
        description, text = self.folder / DESCRIPTION, self.encoding.to_json()
        if not description.is_file() or description.read_bytes() != text.encode():
            write_atomically(description, text)
        with suppress(OSError):  # another user's store can still be read
            os.utime(description)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FedotpError(
                f"cannot {what} the token store {self.folder}: {error.strerror}; "
                "free disk space, change permissions or choose another folder"
            ) from error


def _take(mapped: Records, rows: Ints, records: Records, part: slice) -> None:
    np.take(mapped, rows[part], out=records[part], mode="clip")  # not "raise", which makes another copy


_OURS = re.compile(rf"[0-9a-f]{{16}}({re.escape(INDEX_SUFFIX)}|{re.escape(RECORDS_SUFFIX)})")
_MOST_BYTES = 1 << 20  # of a description
_DAY_S = 86_400.0


@dataclass(frozen=True)
class StoreInfo:
    """A folder of tokens: `n_records` crops of `n_images` different images, at most `n_crops` of each."""

    folder: Path
    encoding: Encoding
    n_images: int
    n_crops: int
    n_records: int
    n_bytes: int
    last_use: float

    @property
    def tower(self) -> str:
        """Short description of the image tower, for example `ViT 224 px, 196 patches`."""
        try:
            vision = json.loads(self.encoding.tower)["vision"]
            kind = f"{'ViT' if 'patch_size' in vision else 'ResNet'} {vision['image_size']} px"
        except (ValueError, LookupError, TypeError, RecursionError):  # a forged description
            kind = "unknown"
        return f"{kind}, {self.encoding.n_patches} patches"


def list_stores(root: Path) -> list[StoreInfo]:
    """Return the stores below `root`, least recently used first; other folders are ignored."""
    folders = sorted(root.iterdir()) if root.is_dir() else []
    infos = [info for folder in folders if (info := _look_into(folder)) is not None]
    return sorted(infos, key=lambda info: info.last_use)


def select_stores(
    infos: Sequence[StoreInfo], *, backbone: str = "", older_than_days: float = 0.0, max_bytes: int | None = None
) -> list[StoreInfo]:
    """Select stores whose backbone's digest starts with `backbone` *and* that were unused for `older_than_days`.

    With `max_bytes`, select of these only as many, least recently used first, as needed to reduce all stores to it.
    """
    latest = time.time() - older_than_days * _DAY_S
    chosen = []
    total = sum(info.n_bytes for info in infos)
    for info in sorted(infos, key=lambda info: info.last_use):
        fits = max_bytes is not None and total <= max_bytes
        if info.encoding.backbone.startswith(backbone) and info.last_use <= latest and not fits:
            chosen.append(info)
            total -= info.n_bytes
    return chosen


def remove_stores(infos: Iterable[StoreInfo]) -> int:
    """Delete the files of these stores and return the bytes freed; other files remain."""
    freed = 0
    for info in infos:
        try:
            for path in _our_files(info.folder, info.encoding):
                freed += path.stat().st_size
                path.unlink()
            (info.folder / DESCRIPTION).unlink()
        except OSError as error:
            raise FedotpError(f"cannot remove {info.folder}: {error.strerror}") from error
        with suppress(OSError):  # it contains other files
            info.folder.rmdir()
    return freed


def _look_into(folder: Path) -> StoreInfo | None:
    description = folder / DESCRIPTION
    try:
        encoding = Encoding.from_json(read_regular(description, _MOST_BYTES).decode())
    except (OSError, ValueError, FedotpError):
        return None
    if encoding.fingerprint != folder.name:
        return None
    shards = [Shard(path, encoding) for path in _our_files(folder, encoding) if path.suffix == INDEX_SUFFIX]
    entries = np.concatenate([np.zeros(0, ENTRY), *(shard.new_entries() for shard in shards if shard.usable)])
    keys = np.unique(entries["key"][intact(entries)])
    _, copies = np.unique(split_keys(keys)["digest"], return_counts=True)
    return StoreInfo(
        folder=folder,
        encoding=encoding,
        n_images=len(copies),
        n_crops=int(copies.max(initial=0)),
        n_records=len(keys),
        n_bytes=sum(path.stat().st_size for path in _our_files(folder, encoding)),
        last_use=description.stat().st_mtime,
    )


def _our_files(folder: Path, encoding: Encoding) -> list[Path]:
    """Return the files of shards: those with their names that are empty or have their headers."""
    headers = (encoding.header(INDEX_MAGIC), encoding.header(RECORDS_MAGIC))
    named = [path for path in sorted(folder.iterdir()) if _OURS.fullmatch(path.name) and path.is_file()]
    return [path for path in named if not path.stat().st_size or any(begins(path, header) for header in headers)]
