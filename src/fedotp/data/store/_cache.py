"""What is in the token stores of this machine, and making room."""

import json
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedotp._files import read_regular
from fedotp.data.store._format import ENTRY, HEADER_SIZE, INDEX_MAGIC, RECORDS_MAGIC, Encoding, intact, split_keys
from fedotp.data.store._shard import INDEX_SUFFIX, RECORDS_SUFFIX, Shard
from fedotp.data.store._store import DESCRIPTION
from fedotp.errors import FedotpError

_OURS = re.compile(rf"[0-9a-f]{{16}}({re.escape(INDEX_SUFFIX)}|{re.escape(RECORDS_SUFFIX)})")
_MOST_BYTES = 1 << 20  # of a description
_DAY_S = 86_400.0


@dataclass(frozen=True)
class StoreInfo:
    """One folder of tokens: `n_records` crops of `n_images` different images, `n_crops` at most of each."""

    folder: Path
    encoding: Encoding
    n_images: int
    n_crops: int
    n_records: int
    n_bytes: int
    last_use: float

    @property
    def tower(self) -> str:
        """The image tower in a few words, for example `ViT 224 px, 196 patches`."""
        try:
            vision = json.loads(self.encoding.tower)["vision"]
            kind = f"{'ViT' if 'patch_size' in vision else 'ResNet'} {vision['image_size']} px"
        except (ValueError, LookupError, TypeError, RecursionError):  # somebody else wrote the description
            kind = "unknown"
        return f"{kind}, {self.encoding.n_patches} patches"


def list_stores(root: Path) -> list[StoreInfo]:
    """The stores below `root`, the least recently used first; what is not a store is passed over."""
    folders = sorted(root.iterdir()) if root.is_dir() else []
    infos = [info for folder in folders if (info := _look_into(folder)) is not None]
    return sorted(infos, key=lambda info: info.last_use)


def select_stores(
    infos: Sequence[StoreInfo],
    *,
    backbone: str = "",
    older_than_days: float = 0.0,
    max_bytes: int | None = None,
) -> list[StoreInfo]:
    """Choose stores to remove: of the backbones whose digest begins so *and* unused for so long.

    With `max_bytes`, of these only as many as it takes, the least recently used first, until all stores
    together fit.
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
    """Delete the files of these stores and return the bytes freed; files that are not ours stay."""
    freed = 0
    for info in infos:
        try:
            for path in _our_files(info.folder, info.encoding):
                freed += path.stat().st_size
                path.unlink()
            (info.folder / DESCRIPTION).unlink()
        except OSError as error:
            raise FedotpError(f"{info.folder}: cannot be removed: {error.strerror}") from error
        with suppress(OSError):  # something of somebody else's is in it
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
    """The shards' files: named as we name them, and empty or beginning as ours do."""
    headers = (b"", encoding.header(INDEX_MAGIC), encoding.header(RECORDS_MAGIC))
    named = [path for path in sorted(folder.iterdir()) if _OURS.fullmatch(path.name) and path.is_file()]
    return [path for path in named if _start(path) in headers]


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_SIZE)
