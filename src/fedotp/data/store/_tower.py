"""Encoding of missing crops: decoded ahead, encoded by the image tower, and written to the store."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp._graphs import Recorded, Recordings
from fedotp.clip import CLIP, ImageFeatures, Normalisation, normalise
from fedotp.data._dataset import ImageFiles, Split
from fedotp.data._types import Ints
from fedotp.data.store._crops import Decoded, Request, Transform
from fedotp.data.store._pool import DecoderPool
from fedotp.data.store._shard import DIGEST, Keys, split_keys
from fedotp.data.store._store import TokenStore
from fedotp.data.store._tokens import compress, pack
from fedotp.errors import FedotpError
from fedotp.images import reason


class Tower:
    """An image tower, run in `precision` if that is not the precision of its weights."""

    def __init__(self, clip: CLIP, precision: torch.dtype | None = None, normalisation: Normalisation = "clip") -> None:
        self.clip, self.precision, self.normalisation = clip, precision, normalisation
        self.size = clip.config.image_size
        self._pixels: Tensor | None = None
        self._recorded: Future[Recorded[ImageFeatures] | None] | None = None

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.clip.device

    def get_ready(self, batch_size: int) -> None:
        """Capture the encoding of a batch of this size in a CUDA graph, in the background.

        While decoding keeps all cores busy, launching its kernels one by one takes longer than running them.
        """
        if self.device.type != "cuda" or self._recorded is not None:
            return
        self._pixels = torch.zeros(batch_size, self.size, self.size, 3, dtype=torch.uint8, device=self.device)
        recording = ThreadPoolExecutor(1)
        self._recorded = recording.submit(self._record, self._pixels)
        recording.shutdown(wait=False)

    def __call__(self, pixels: Tensor) -> ImageFeatures:
        """Encode RGB pixels, uint8 (n, H, W, 3), into features on the device of the weights; `pixels` may be reused."""
        if self.device.type == "cuda":  # copies from pinned memory run while the next batch is prepared
            pixels = torch.empty(pixels.shape, dtype=torch.uint8, pin_memory=True).copy_(pixels)
        recorded = self._recorded.result() if self._recorded is not None else None
        if recorded is None or self._pixels is None or len(pixels) != len(self._pixels):
            return self._encode(pixels.to(self.device, non_blocking=True))
        self._pixels.copy_(pixels, non_blocking=True)
        features = recorded()
        return ImageFeatures(features.pooled.clone(), features.tokens.clone())  # before the next batch comes

    def _encode(self, pixels: Tensor) -> ImageFeatures:
        mixed = self.precision is not None
        with torch.no_grad(), torch.autocast(self.device.type, self.precision, enabled=mixed):
            return self.clip.encode_image(normalise(pixels, self.normalisation))

    def _record(self, pixels: Tensor) -> Recorded[ImageFeatures] | None:
        with torch.cuda.device(self.device):
            try:
                recordings: Recordings[ImageFeatures] = Recordings()
                return recordings.get(None, lambda: self._encode(pixels))
            except torch.OutOfMemoryError:  # launching kernels one by one may need less
                return None


AHEAD = 3  # batches decoded while the tower encodes one
_WRITERS = 2  # threads, and the number of batches waiting for the GPU, checksums and the disk


class SplitImage(NamedTuple):
    """Image number `i` of `split`."""

    split: Split
    i: int

    def read(self) -> bytes:
        """Return the bytes of the file."""
        return self.split.read(self.i)

    def portable(self) -> "str | bytes | SplitImage":
        """Return the image for another process: the path of a file, else its bytes; itself if it cannot be read."""
        if isinstance(self.split.source, ImageFiles):
            return self.split.where(self.i)
        try:
            return self.read()
        except (OSError, FedotpError):
            return self


def content_of(split: Split, i: int) -> bytes:
    """Return the SHA-256 of the bytes of image `i` of `split`, equal for copies."""
    try:
        return sha256(split.read(i)).digest()
    except OSError as error:
        raise FedotpError(f"cannot read image {split.where(i)}: {reason(error)}") from error


class Missing(NamedTuple):
    """Images and keys (m,) of m crops to encode; crops of an image are adjacent."""

    images: Ints
    keys: Keys

    @classmethod
    def of(cls, keys: Keys, wanted: NDArray[np.bool_]) -> "Missing":
        """Select the `wanted` (k, n) among the crops with these keys (k, n), each key once."""
        images, crops = np.nonzero(wanted.T)
        _, first = np.unique(keys[crops, images], return_index=True)
        first.sort()
        return cls(images[first], keys[crops[first], images[first]])


class Encoder:
    """Encoding of the missing crops of one split into one store.

    Processes that encode the same images at the same time share the work: each processes the batches in its own random
    order and skips crops that others have written meanwhile.
    """

    def __init__(
        self,
        missing: Missing,
        split: Split,
        store: TokenStore,
        transform: Transform,
        *,
        on_crops: Callable[[int], object],
        on_broken: Callable[[int, str], object],
    ) -> None:
        """Call `on_crops` with numbers of crops done, and `on_broken` for images that cannot be decoded."""
        self._missing, self._split, self._store, self._transform = missing, split, store, transform
        self.on_crops, self._on_broken = on_crops, on_broken
        self._by_key = np.argsort(missing.keys)
        self._sorted_keys = missing.keys[self._by_key]
        self._there = np.zeros(len(missing.keys), bool)  # written by another process

    @property
    def n_images(self) -> int:
        """Number of images with missing crops."""
        return len(np.unique(self._missing.images))

    def batches(self, batch_size: int) -> Iterator[Ints]:
        """Yield batches of numbers (n,) of crops to encode."""
        starts = list(range(0, len(self._missing.keys), batch_size))
        random.SystemRandom().shuffle(starts)
        for start in starts:
            batch = np.arange(start, min(start + batch_size, len(self._missing.keys)))
            self._note(self._store.refresh())
            todo = batch[~self._there[batch]]
            self.on_crops(len(batch) - len(todo))
            yield todo

    def requests(self, crops: Ints, row: int) -> list[Request]:
        """Return the requests, one for each image, that decode the crops (n,) into the rows from `row` on."""
        images, keys = self._missing.images[crops], split_keys(self._missing.keys[crops])
        drawn = list(zip(keys["seed"].tolist(), keys["crop"].tolist(), strict=True))
        changes = np.flatnonzero(np.diff(images, prepend=-1, append=-1)).tolist()
        return [
            Request(
                image=SplitImage(self._split, int(images[first])),
                digest=bytes(keys["digest"][first]).ljust(DIGEST.itemsize, b"\0"),  # NumPy strips trailing zeros
                crops=tuple(drawn[first:last]),
                transform=self._transform,
                row=row + first,
            )
            for first, last in pairwise(changes)
        ]

    def sound(self, crops: Ints, requests: Sequence[Request], found: Iterable[Decoded]) -> NDArray[np.bool_]:
        """Return a mask of the crops (n,) that were decoded, and report broken images."""
        sound = np.ones(len(crops), bool)
        for request, looked in zip(requests, found, strict=True):
            if looked.broken:
                first = request.row - requests[0].row
                sound[first : first + len(request.crops)] = False
                self._on_broken(int(self._missing.images[crops[first]]), looked.broken)
                self.on_crops(len(request.crops))
        return sound

    def write(self, crops: Ints, features: ImageFeatures) -> None:
        """Write the features of the crops (n,) to the store."""
        encoding = self._store.encoding
        records = pack(compress(features, encoding.storage), encoding.record)
        self._store.append(self._missing.keys[crops], records)

    def _note(self, keys: Keys) -> None:
        """Mark the crops with these keys (n,) as stored."""
        mine = self._sorted_keys
        at = np.searchsorted(mine, keys).clip(max=len(mine) - 1)
        self._there[self._by_key[at[mine[at] == keys]]] = True


def encode_crops(encoders: Sequence[Encoder], tower: Tower, decoders: DecoderPool, batch_size: int) -> int:
    """Encode all missing crops in one stream and return their number.

    `decoders` must have memory for `AHEAD` + 1 batches.
    """
    n_encoded = 0
    decoders.expect(sum(encoder.n_images for encoder in encoders))
    written: deque[Future[None]] = deque()
    with ThreadPoolExecutor(_WRITERS) as writers:  # checksums and writing run while the tower encodes
        for encoder, crops, pixels in _decoded(encoders, decoders, batch_size):
            features = tower(pixels)
            while len(written) >= _WRITERS:
                written.popleft().result()
            written.append(writers.submit(encoder.write, crops, features))
            n_encoded += len(crops)
            encoder.on_crops(len(crops))
        while written:
            written.popleft().result()
    return n_encoded


def _decoded(
    encoders: Sequence[Encoder], decoders: DecoderPool, batch_size: int
) -> Iterator[tuple[Encoder, Ints, Tensor]]:
    """Yield batches of crops: their numbers (n,) and pixels (n, H, W, 3), valid until the next batch."""
    batches = ((encoder, crops) for encoder in encoders for crops in encoder.batches(batch_size) if len(crops))
    free = deque(range(0, len(decoders.pixels), batch_size))  # first rows of free memory for a batch
    ahead: deque[tuple[Encoder, Ints, int, list[Request], Iterator[Decoded]]] = deque()
    while True:
        for encoder, crops in islice(batches, AHEAD - len(ahead)):
            row = free.popleft()
            requests = encoder.requests(crops, row)
            ahead.append((encoder, crops, row, requests, decoders.submit(requests)))
        if not ahead:
            return
        encoder, crops, row, requests, looked = ahead.popleft()
        sound = encoder.sound(crops, requests, looked)
        if sound.any():
            pixels = torch.from_numpy(decoders.pixels[row : row + len(crops)])
            yield encoder, crops[sound], pixels if sound.all() else pixels[torch.from_numpy(sound)]
        free.append(row)
