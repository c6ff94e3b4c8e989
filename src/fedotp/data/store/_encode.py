"""Encoding of data sets: images are hashed, and crops that are missing in the store are encoded.

Digests of files are cached per folder in `<root>/hashes/<folder>.npy`, with the size, inode and modification times of
each file. A file modified less than 2 s before it was read is not cached, because another modification could leave the
same times. If two processes write the cache at the same time, one of them wins; lost digests are computed again.
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
from fedotp.data._check import Broken
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

_MANY_BATCHES = 4  # of new images: enough to capture the tower in a CUDA graph


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
    """Return `dataset` as tokens; those missing in the store below `root` are encoded and stored.

    The tower runs on the device of `clip`. Test images have one central crop.

    Args:
        crops: 0 for the central crop of training images; k > 0 for k random crops and flips of each, drawn from
            `seed`, the content of the image and the number of the crop. With k = rounds x local epochs, training on
            crop t in epoch t corresponds to the authors' code.
        storage: "int8" needs half the space of "float16".
        precision: number format of the tower (autocast), by default that of its weights.
        window: window of images of more than 8 bits (data.window).
        normalisation: "cifar10" and "cifar100" preprocess as the authors' code does, with the central crop only.
        batch_size: crops in a step of the tower.
        verify: check the checksums of stored tokens, and encode corrupt ones again.
        skip_broken: remove images that cannot be decoded; if false, they are an error.
        on_progress: called with the step, the number done and the total.
        on_broken: called with each broken image.
    """
    for name, value, least in (("crops", crops, 0), ("seed", seed, 0), ("batch_size", batch_size, 1)):
        if value < least:
            raise FedotpError(f"{name} = {value}: must be at least {least}")
    if crops and normalisation != "clip":
        raise FedotpError(f"crops = {crops}: must be 0 with normalisation = {normalisation!r}")
    read_window(window)  # raises if invalid
    size = clip.config.image_size
    central, drawn = EvalTransform(size, normalisation, window), TrainTransform(size, greys=window)
    tower = Tower(clip, precision, normalisation)
    with DecoderPool((AHEAD + 1) * batch_size, size) as decoders:
        ignore: Callable[..., None] = lambda *_: None  # noqa: E731
        callbacks = on_progress or ignore, on_broken or ignore
        job = _Job(root or default_store(), tower, seed, storage, batch_size, decoders, verify, *callbacks)
        (train, broken_train), (test, broken_test) = job.encode(
            job.part("train", dataset.train, drawn if crops else central, crops),
            job.part("test", dataset.test, central, 0),
        )
    broken = [*broken_train, *broken_test]
    if broken and not skip_broken:
        raise FedotpError(
            f"{dataset.name}: {len(broken)} broken images, first {broken[0].where} ({broken[0].reason}); "
            "`fedotp data check` lists them; skip them with --set data.skip_broken=true"
        )
    dataset = dataset.without(b.ref for b in broken) if broken else dataset
    return EncodedDataset(dataset, train, test, job.n_encoded, job.n_repaired)


@dataclass(frozen=True)
class _Part:
    """A split, its transform and encoding, the keys (k, n) of its crops, and the `reasons` of broken images."""

    name: SplitName
    split: Split
    transform: EvalTransform | TrainTransform
    encoding: Encoding
    keys: Keys
    reasons: dict[int, str]

    def broken(self, image: int, reason: str) -> Broken:
        """Describe the broken image with this number."""
        return Broken(ImageRef(self.name, image), self.split.where(image), reason)


@dataclass
class _Job:
    """Encoding of both splits: common settings, and counts."""

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
        """Hash the images of a split, and return the keys of `crops` random crops, or of the central one."""
        clip = self.tower.clip
        tower = {"vision": asdict(clip.config.vision), "activation": clip.config.activation}
        encoding = Encoding(
            backbone=clip.image_digest,
            tower=json.dumps(tower, sort_keys=True),
            transform=transform.spec,
            precision=str(self.tower.precision or clip.dtype).removeprefix("torch."),
            storage=self.storage,
            n_patches=clip.config.n_patches,
            width=clip.config.embed_dim,
        )
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
        """Prepare for this number of new images, most of which must be encoded."""
        self.decoders.expect(n_new)
        if n_new >= _MANY_BATCHES * self.batch_size:
            self.tower.get_ready(self.batch_size)

    def encode(self, *parts: _Part) -> list[tuple[EncodedSplit, list[Broken]]]:
        """Encode the missing crops of all parts in one pass; return each part's images and its broken ones."""
        opened: dict[Encoding, TokenStore] = {}
        missing: dict[Encoding, Keys] = {}
        stores, encoders = [], []
        for part in parts:
            kind = part.encoding
            store = opened[kind] = opened.get(kind) or TokenStore(self.root, kind)
            if self.verify:
                self.n_repaired += self._repair(store, store.find(part.keys), f"checking {part.name}")
            wanted = (store.find(part.keys) < 0) & ~np.isin(part.keys, missing.get(kind, part.keys[:0, 0]))
            wanted[:, list(part.reasons)] = False
            lacking = Missing.of(part.keys, wanted)
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

    def _encoder(self, part: _Part, store: TokenStore, missing: Missing) -> Encoder:
        def note_broken(image: int, reason: str) -> None:
            part.reasons[image] = reason
            self.on_broken(part.broken(image, reason))

        count = self._counter(f"encoding {part.name}", len(missing.keys))
        return Encoder(missing, part.split, store, part.transform, on_crops=count, on_broken=note_broken)

    def _repair(self, store: TokenStore, numbers: Ints, what: str) -> int:
        """Delete corrupt records and return their number."""
        numbers = np.unique(numbers[numbers >= 0])
        count = self._counter(what, len(numbers))
        n_damaged = 0
        for n_checked, damaged in store.check(numbers):
            store.drop(damaged)
            n_damaged += len(damaged)
            count(n_checked)
        return n_damaged

    def _counter(self, what: str, total: int) -> Callable[[int], None]:
        """Return a function that counts and reports progress."""
        done = 0

        def count(n: int) -> None:
            nonlocal done
            done += n
            self.on_progress(what, done, total)

        return count


def _outcome(part: _Part, store: TokenStore, reasons: dict[bytes, str]) -> tuple[EncodedSplit, list[Broken]]:
    """Return the part's records in `store`; `reasons` are by key, as equal images are decoded only once."""
    records = store.find(part.keys)
    broken = []
    for image in np.flatnonzero((records < 0).any(axis=0)).tolist():
        reason = part.reasons.get(image) or reasons.get(bytes(part.keys[0, image]))
        if reason is None:
            raise FedotpError(
                f"the tokens of {part.split.where(image)} were deleted during encoding, for example by pruning the "
                "store; run the command again"
            )
        broken.append(part.broken(image, reason))
    return EncodedSplit(store, records[:, (records >= 0).all(axis=0)]), broken


_FACTS = np.dtype([("size", "<i8"), ("inode", "<u8"), ("mtime", "<i8"), ("ctime", "<i8")])
_MEMO = np.dtype([("path", "S16"), ("facts", _FACTS), ("digest", DIGEST)])
_MOST_BYTES = 1 << 30  # of a cache of digests: ten million files
_UNSETTLED_NS = 2_000_000_000  # the coarsest clock among file systems
_BLOCK = 2048  # images submitted at once, to limit memory
_AT_A_TIME = 32  # of these for one process


def hash_images(
    split: Split,
    root: Path,
    decoders: DecoderPool,
    *,
    on_new: Callable[[int], object],
    on_images: Callable[[int], object],
    on_broken: Callable[[int, str], object],
) -> Digests:
    """Hash every image of `split` (n,), using the cache of earlier calls with the same `root`.

    `on_new` is called with the number of images to hash, `on_images` with numbers of images done, `on_broken` for
    images that cannot be read, whose digest is empty.
    """
    started = time.time_ns()
    digests = np.zeros(len(split), DIGEST)
    if isinstance(split.source, ImageFiles):
        memo = _look_at(split, split.source)
        earlier = _load(_memo_file(split.source, root))  # sorted by path
        if len(earlier):
            nearest = earlier[np.searchsorted(earlier["path"], memo["path"]).clip(max=len(earlier) - 1)]
            unchanged = (nearest["path"] == memo["path"]) & (nearest["facts"] == memo["facts"])
            digests[unchanged] = nearest["digest"][unchanged]
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
    """Return the file system's facts about each file (n,), before any is read."""
    memo = np.zeros(len(split), _MEMO)
    root = os.fspath(files.root)
    for i, row in enumerate(split.rows.tolist()):
        path = files.paths[row]
        memo["path"][i] = hashlib.sha256(os.fsencode(path)).digest()[:16]
        with suppress(OSError):  # a missing file is reported when it is read
            stat = os.stat(os.path.join(root, path))
            memo["facts"][i] = (stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)
    return memo


def _load(file: Path) -> NDArray[np.void]:
    try:
        stored = io.BytesIO(read_regular(file, _MOST_BYTES))
        earlier: NDArray[np.void] = np.lib.format.read_array(stored, allow_pickle=False)
    except Exception:  # any error of NumPy for a corrupt file: the images are hashed again
        return np.zeros(0, _MEMO)
    return earlier if earlier.dtype == _MEMO and earlier.ndim == 1 else np.zeros(0, _MEMO)


def _save(file: Path, earlier: NDArray[np.void], now: NDArray[np.void]) -> None:
    kept = earlier[~np.isin(earlier["path"], now["path"])]
    memo = np.concatenate([kept, now])
    unfinished = file.with_suffix(f".{os.getpid()}.tmp")
    with suppress(OSError):  # the cache is optional; a full disk is reported when tokens are written
        file.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as out:
            np.save(out, memo[np.argsort(memo["path"], kind="stable")], allow_pickle=False)
        os.replace(unfinished, file)
