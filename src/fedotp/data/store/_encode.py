"""From a data set and a backbone to tokens: images are hashed, and what the store lacks of them is encoded.

Files are not read again only to be hashed: their digests are remembered per folder in `<root>/hashes/<folder>.npy`,
each with the size, inode and times of change of the file. A file that was changed in the two seconds before it was
read is not remembered, because one more change could leave the same times. If two processes write this memory at once,
one of them wins; what is lost is only hashed again.
"""

import hashlib
import io
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedotp._files import read_regular
from fedotp.clip import CLIP, EvalTransform, Normalisation, TrainTransform
from fedotp.data._check import Broken, broken_images
from fedotp.data._dataset import Dataset, ImageFiles, ImageRef, Split, SplitName
from fedotp.data._types import Ints, OnProgress
from fedotp.data.store import BATCH_SIZE, STORAGE, Storage
from fedotp.data.store._crops import Request
from fedotp.data.store._pool import DecoderPool
from fedotp.data.store._shard import DIGEST, Digests, Encoding, Keys, make_keys
from fedotp.data.store._store import TokenStore, default_store
from fedotp.data.store._tokens import EncodedDataset, EncodedSplit
from fedotp.data.store._tower import AHEAD, Encoder, Missing, SplitImage, Tower, encode_crops
from fedotp.errors import FedotpError
from fedotp.images import WINDOW, read_window

_MANY_BATCHES = 4  # of new images: recording the tower is worth it


def encode(
    dataset: Dataset,
    clip: CLIP,
    *,
    crops: int = 0,
    seed: int = 0,
    root: Path | None = None,
    storage: Storage = STORAGE,
    precision: torch.dtype | None = None,
    normalisation: Normalisation = "clip",
    window: str = WINDOW,
    batch_size: int = BATCH_SIZE,
    verify: bool = True,
    skip_broken: bool = False,
    on_progress: OnProgress | None = None,
    on_broken: Callable[[Broken], object] | None = None,
) -> EncodedDataset:
    """Return `dataset` as tokens; what the store below `root` lacks is encoded now, and kept.

    The tower runs where the weights of `clip` are. Test images are seen in their central part.

    Args:
        crops: 0 shows training images in their central part, too. k > 0 draws k random crops and flips of
            each ahead, all from `seed`, the content of the image and the number of the crop; with k = rounds
            x local epochs, training on crop t in epoch t is what the authors' code does.
        storage: "int8" takes half the space of "float16".
        precision: a number format for the tower other than its weights' (autocast).
        window: how pictures of more than 8 bits are seen (data.window).
        normalisation: "cifar10" and "cifar100" show images as the authors' code does, in their central part only.
        batch_size: crops in a step of the tower.
        verify: compare the tokens found in the store with their checksums, and encode damaged ones again.
        skip_broken: leave images that cannot be decoded out of the data set; they are an error otherwise.
        on_progress: called with what is being done, how much of it is done, and of how much.
        on_broken: called with each broken content when it is met.
    """
    if crops < 0 or seed < 0 or batch_size < 1:
        raise FedotpError(f"crops {crops}, seed {seed}, batch size {batch_size}: these must be at least 0, 0 and 1")
    if crops and normalisation != "clip":
        raise FedotpError(f"crops {crops}: must be 0, as images shown as {normalisation!r} are not cropped at random")
    read_window(window)  # or refused
    size = clip.config.image_size
    central, drawn = EvalTransform(size, normalisation, window), TrainTransform(size, greys=window)
    tower = Tower(clip, precision, normalisation)
    with DecoderPool((AHEAD + 1) * batch_size, size) as decoders:
        callbacks = on_progress or _ignore, on_broken or _ignore
        job = _Job(root or default_store(), tower, seed, storage, batch_size, decoders, verify, *callbacks)
        (train, broken_train), (test, broken_test) = job.encode(
            job.part("train", dataset.train, drawn if crops else central, crops),
            job.part("test", dataset.test, central, 0),
        )
    broken = [*broken_train, *broken_test]
    if broken and not skip_broken:
        raise broken_images(dataset, broken)
    dataset = dataset.without(b.ref for b in broken) if broken else dataset
    return EncodedDataset(dataset, train, test, job.n_encoded, job.n_repaired)


def encoding_of(
    clip: CLIP,
    transform: EvalTransform | TrainTransform,
    *,
    storage: Storage = STORAGE,
    precision: torch.dtype | None = None,
) -> Encoding:
    """What tokens made by this model and transform are, and so under which name they are stored."""
    config = clip.config
    tower = {"vision": asdict(config.vision), "activation": config.activation}
    return Encoding(
        backbone=clip.image_digest,
        tower=json.dumps(tower, sort_keys=True),
        transform=transform.spec,
        precision=str(precision or clip.dtype).removeprefix("torch."),
        storage=storage,
        n_patches=config.n_patches,
        width=config.embed_dim,
    )


@dataclass(frozen=True)
class _Part:
    """A split, how it is shown and encoded, and the keys (k, n) of its crops; `reasons` why images are broken."""

    name: SplitName
    split: Split
    transform: EvalTransform | TrainTransform
    encoding: Encoding
    keys: Keys
    reasons: dict[int, str]

    def broken(self, image: int, reason: str) -> Broken:
        """The image with this number, and what is wrong with it."""
        return Broken(ImageRef(self.name, image), self.split.where(image), reason)


@dataclass
class _Job:
    """What is the same for both splits, and what was done for them."""

    root: Path
    tower: Tower
    seed: int
    storage: Storage
    batch_size: int
    decoders: DecoderPool
    verify: bool
    on_progress: OnProgress
    on_broken: Callable[[Broken], object]
    n_encoded: int = 0
    n_repaired: int = 0

    def part(self, name: SplitName, split: Split, transform: EvalTransform | TrainTransform, crops: int) -> _Part:
        """Hash the images of a split: `crops` random crops of each are wanted, or the plain one."""
        encoding = encoding_of(self.tower.clip, transform, storage=self.storage, precision=self.tower.precision)
        reasons: dict[int, str] = {}
        count = self._counter(f"hashing {name}", len(split))
        digests = hash_images(
            split, self.root, self.decoders, on_new=self._expect, on_images=count, on_broken=reasons.__setitem__
        )
        if crops:
            keys = np.stack([make_keys(digests, seed=self.seed, crop=j) for j in range(crops)])
        else:
            keys = make_keys(digests, seed=0, crop=0)[None]  # (k, n)
        part = _Part(name, split, transform, encoding, keys, reasons)
        for image, reason in reasons.items():
            self.on_broken(part.broken(image, reason))
        return part

    def _expect(self, n_new: int) -> None:
        """So many images were never seen before: most of them will have to be encoded."""
        self.decoders.expect(n_new)
        if n_new >= _MANY_BATCHES * self.batch_size:
            self.tower.get_ready(self.batch_size)

    def encode(self, *parts: _Part) -> list[tuple[EncodedSplit, list[Broken]]]:
        """Encode what is missing of any part, all in one go; of each its sound images, and the broken ones."""
        opened: dict[Encoding, TokenStore] = {}
        missing: dict[Encoding, Keys] = {}
        stores, encoders = [], []
        for part in parts:
            kind = part.encoding
            store = opened[kind] = opened.get(kind) or TokenStore(self.root, kind)
            lacking = self._lacking(part, store, missing.get(kind, part.keys[:0, 0]))
            missing[kind] = lacking.keys
            stores.append(store)
            encoders.append(self._encoder(part, store, lacking))
        try:
            self.n_encoded = encode_crops(encoders, self.tower, self.decoders, self.batch_size)
        finally:
            for store in stores:
                store.close()
        for store in opened.values():
            store.refresh()
        reasons = {bytes(part.keys[0, image]): reason for part in parts for image, reason in part.reasons.items()}
        return [_outcome(part, store, reasons) for part, store in zip(parts, stores, strict=True)]

    def _lacking(self, part: _Part, store: TokenStore, others: Keys) -> Missing:
        """The crops that are not in `store`, or damaged there, and not encoded for another part either."""
        if self.verify:
            self.n_repaired += self._repair(store, store.find(part.keys), f"checking {part.name}")
        wanted = (store.find(part.keys) < 0) & ~np.isin(part.keys, others)
        wanted[:, list(part.reasons)] = False
        return Missing.of(part.keys, wanted)

    def _encoder(self, part: _Part, store: TokenStore, missing: Missing) -> Encoder:
        def note_broken(image: int, reason: str) -> None:
            part.reasons[image] = reason
            self.on_broken(part.broken(image, reason))

        count = self._counter(f"encoding {part.name}", len(missing.keys))
        return Encoder(missing, part.split, store, part.transform, on_crops=count, on_broken=note_broken)

    def _repair(self, store: TokenStore, numbers: Ints, what: str) -> int:
        """Strike damaged records out; return how many."""
        numbers = np.unique(numbers[numbers >= 0])
        count = self._counter(what, len(numbers))
        n_damaged = 0
        for n_checked, damaged in store.check(numbers):
            store.drop(damaged)
            n_damaged += len(damaged)
            count(n_checked)
        return n_damaged

    def _counter(self, what: str, total: int) -> Callable[[int], None]:
        """A function that adds to what is done and reports it."""
        done = 0

        def count(n: int) -> None:
            nonlocal done
            done += n
            self.on_progress(what, done, total)

        return count


def _outcome(part: _Part, store: TokenStore, reasons: dict[bytes, str]) -> tuple[EncodedSplit, list[Broken]]:
    """What is in `store` now; `reasons` by key, so that the reason found for the first of equal content is known."""
    records = store.find(part.keys)
    broken = []
    for image in np.flatnonzero((records < 0).any(axis=0)).tolist():
        reason = part.reasons.get(image) or reasons.get(bytes(part.keys[0, image]))
        if reason is None:
            raise FedotpError(
                f"the tokens of {part.split.where(image)} vanished while others were encoded; was the store pruned?"
            )
        broken.append(part.broken(image, reason))
    return EncodedSplit(store, records[:, (records >= 0).all(axis=0)]), broken


def _ignore(*_: object) -> None:
    """Ignore progress."""


_FACTS = np.dtype([("size", "<i8"), ("inode", "<u8"), ("mtime", "<i8"), ("ctime", "<i8")])
_MEMO = np.dtype([("path", "S16"), ("facts", _FACTS), ("digest", DIGEST)])
_MOST_BYTES = 1 << 30  # of a memory: ten million files
_UNSETTLED_NS = 2_000_000_000  # the coarsest clock among file systems
_BLOCK = 2048  # images handed over at a time, so that memory does not grow with the data set
_AT_A_TIME = 32  # of them to one process


def hash_images(
    split: Split,
    root: Path,
    decoders: DecoderPool,
    *,
    on_new: Callable[[int], object],
    on_images: Callable[[int], object],
    on_broken: Callable[[int, str], object],
) -> Digests:
    """Hash every image of `split` (n,), or recall its hash from an earlier call with the same `root`.

    `on_new` is called with the number of images to hash, `on_images` with that of images done, `on_broken` for images
    that cannot be read; their digest is empty.
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
