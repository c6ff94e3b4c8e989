"""The content of images as SHA-256, so that tokens follow an image wherever it is copied.

Files are not read again only to be hashed: their digests are remembered per folder in
`<root>/hashes/<folder>.npy`, each with the file's size, inode and times of change. A file that was changed in
the two seconds before it was looked at is not remembered, because one more change could leave the same times.
Of two processes that write this memory at once one wins; what is lost is only hashed again.
"""

import hashlib
import io
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedotp._files import read_regular
from fedotp.data._dataset import FileContents, ImageArray, ImageFiles, Split
from fedotp.data.store._crops import Portable, Request, content_digest
from fedotp.data.store._decoders import Decoders
from fedotp.data.store._format import DIGEST, Digests
from fedotp.errors import FedotpError
from fedotp.images import reason

_FACTS = np.dtype([("size", "<i8"), ("inode", "<u8"), ("mtime", "<i8"), ("ctime", "<i8")])
_MEMO = np.dtype([("path", "S16"), ("facts", _FACTS), ("digest", DIGEST)])
_MOST_BYTES = 1 << 30  # of a memory: ten million files
_UNSETTLED_NS = 2_000_000_000  # the coarsest clock among file systems
_BLOCK = 2048  # images handed over at a time, so that memory does not grow with the data set
_AT_A_TIME = 32  # of them to one process


@dataclass(frozen=True)
class SplitImage:
    """Image number `i` of `split`."""

    split: Split
    i: int

    def read(self) -> bytes:
        """Return the stored bytes."""
        return self.split.read(self.i)

    def decoded(self, content: bytes) -> AbstractContextManager[Image.Image]:
        """Turn them into an image."""
        return self.split.decoded(content)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of bare pixels."""
        source = self.split.source
        return source.pixels.shape[1:] if isinstance(source, ImageArray) else ()

    def portable(self) -> Portable | None:
        """The same for another process: the path of a file, else the bytes; None if they cannot be read, too."""
        source = self.split.source
        if isinstance(source, ImageFiles):
            return Portable(path=os.path.join(source.root, source.paths[self.split.rows[self.i]]))
        with suppress(OSError, FedotpError):
            if isinstance(source, FileContents | ImageArray):
                return Portable(content=self.read(), shape=self.shape)
        return None


def content_of(split: Split, i: int) -> bytes:
    """The digest of what image `i` of `split` is stored as: equal for copies."""
    image = SplitImage(split, i)
    try:
        return content_digest(image.read(), image.shape)
    except OSError as error:
        raise FedotpError(f"cannot read image {split.where(i)}: {reason(error)}") from error


def hash_images(
    split: Split,
    root: Path,
    decoders: Decoders,
    *,
    on_new: Callable[[int], object],
    on_images: Callable[[int], object],
    on_broken: Callable[[int, str], object],
) -> Digests:
    """Hash every image of `split` (n,), or recall its hash from an earlier call with the same `root`.

    `on_new` is told how many are about to be hashed, `on_images` of images done, `on_broken` of images that cannot be
    read; their digest is empty.
    """
    started = time.time_ns()
    digests = np.zeros(len(split), DIGEST)
    if isinstance(split.source, ImageFiles):
        memo = _look_at(split, split.source)
        earlier = _load(_memo_file(split.source, root))
        _recall(memo, earlier)
        digests[:] = memo["digest"]
    unknown = np.flatnonzero(digests == b"")
    on_images(len(split) - len(unknown))
    on_new(len(unknown))
    for start in range(0, len(unknown), _BLOCK):
        block = unknown[start : start + _BLOCK].tolist()
        found = decoders.submit([Request(SplitImage(split, i)) for i in block], _AT_A_TIME)
        for i, looked in zip(block, found, strict=True):
            digests[i] = looked.digest
            if looked.broken:
                on_broken(i, looked.broken)
            on_images(1)
    if isinstance(split.source, ImageFiles) and len(unknown):
        memo["digest"] = digests
        newest = np.maximum(memo["facts"]["mtime"], memo["facts"]["ctime"])
        settled = memo[(digests != b"") & (newest < started - _UNSETTLED_NS)]
        _save(_memo_file(split.source, root), earlier, settled)
    return digests


def _memo_file(files: ImageFiles, root: Path) -> Path:
    folder = hashlib.sha256(os.fsencode(files.root.resolve())).hexdigest()
    return root / "hashes" / f"{folder}.npy"


def _look_at(split: Split, files: ImageFiles) -> NDArray[np.void]:
    """What the file system says of each file (n,), before any of them is read."""
    memo = np.zeros(len(split), _MEMO)
    root = os.fspath(files.root)
    for i, row in enumerate(split.rows.tolist()):
        path = files.paths[row]
        memo["path"][i] = hashlib.sha256(os.fsencode(path)).digest()[:16]
        with suppress(OSError):  # a missing file is reported when it is read
            stat = os.stat(os.path.join(root, path))
            memo["facts"][i] = (stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)
    return memo


def _recall(memo: NDArray[np.void], earlier: NDArray[np.void]) -> None:
    """Fill in the digests of the files that `earlier`, sorted by path, knows unchanged."""
    if len(earlier):
        nearest = earlier[np.searchsorted(earlier["path"], memo["path"]).clip(max=len(earlier) - 1)]
        same = (nearest["path"] == memo["path"]) & (nearest["facts"] == memo["facts"])
        memo["digest"][same] = nearest["digest"][same]


def _load(file: Path) -> NDArray[np.void]:
    try:
        stored = io.BytesIO(read_regular(file, _MOST_BYTES))
        earlier: NDArray[np.void] = np.lib.format.read_array(stored, allow_pickle=False)
    except Exception:  # whatever NumPy makes of damage: the images are hashed again
        return np.zeros(0, _MEMO)
    return earlier if earlier.dtype == _MEMO and earlier.ndim == 1 else np.zeros(0, _MEMO)


def _save(file: Path, earlier: NDArray[np.void], now: NDArray[np.void]) -> None:
    kept = earlier[~np.isin(earlier["path"], now["path"])]
    memo = np.concatenate([kept, now])
    unfinished = file.with_suffix(f".{os.getpid()}.tmp")
    with suppress(OSError):  # remembering is a convenience; a full disk shows where tokens are written
        file.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as out:
            np.save(out, memo[np.argsort(memo["path"], kind="stable")], allow_pickle=False)
        os.replace(unfinished, file)
