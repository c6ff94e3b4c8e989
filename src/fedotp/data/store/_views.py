"""The crops that a store lacks: decoded ahead, through the image tower, into the store."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp.clip import ImageFeatures, Shown
from fedotp.data._dataset import Split
from fedotp.data._types import Ints
from fedotp.data.store._content import SplitImage
from fedotp.data.store._crops import Looked, Request, Transform
from fedotp.data.store._decoders import Decoders
from fedotp.data.store._format import DIGEST, Keys, split_keys
from fedotp.data.store._store import TokenStore
from fedotp.data.store._tokens import compress, pack
from fedotp.data.store._tower import Tower

AHEAD = 3  # batches being decoded while the tower works on one
_WRITERS = 2  # threads; so many batches more may be waiting for the GPU, checksums and the disk


class Missing(NamedTuple):
    """m crops to be encoded: the image and the key of each (m,), crops of one image next to each other."""

    images: Ints
    keys: Keys

    @classmethod
    def of(cls, keys: Keys, wanted: NDArray[np.bool_]) -> "Missing":
        """The `wanted` (k, n) among the crops with these keys (k, n), each key once."""
        images, crops = np.nonzero(wanted.T)
        _, first = np.unique(keys[crops, images], return_index=True)
        first.sort()
        return cls(images[first], keys[crops[first], images[first]])


class Encoder:
    """The missing crops of one split, on their way into one store.

    Processes that encode the same images at once share the work: each visits the batches in an order of its
    own and leaves out what others have written meanwhile.
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
        """`on_crops` is told of crops done, `on_broken` of images that cannot be decoded."""
        self._missing, self._split, self._store, self._transform = missing, split, store, transform
        self.on_crops, self._on_broken = on_crops, on_broken
        self._by_key = np.argsort(missing.keys)
        self._sorted_keys = missing.keys[self._by_key]
        self._there = np.zeros(len(missing.keys), bool)  # written by another process

    @property
    def n_images(self) -> int:
        """Images of which a crop is missing."""
        return len(np.unique(self._missing.images))

    def batches(self, batch_size: int) -> Iterator[Ints]:
        """The numbers (n,) of crops to be encoded, a batch at a time."""
        starts = list(range(0, len(self._missing.keys), batch_size))
        random.SystemRandom().shuffle(starts)
        for start in starts:
            batch = np.arange(start, min(start + batch_size, len(self._missing.keys)))
            self._note(self._store.refresh())
            todo = batch[~self._there[batch]]
            self.on_crops(len(batch) - len(todo))
            yield todo

    def requests(self, crops: Ints, row: int, room: int = 0) -> list[Request]:
        """What is to be decoded for the crops (n,), into the rows from `row` on, which may have room for pictures."""
        return [self._request(crops[part], row + part.start, room) for part in self._by_image(crops)]

    def sound(self, crops: Ints, requests: Sequence[Request], found: Iterable[Looked]) -> NDArray[np.bool_]:
        """Which of the crops (n,) can be seen, now that their images were looked at."""
        sound = np.ones(len(crops), bool)
        for request, looked in zip(requests, found, strict=True):
            if looked.broken:
                first = request.row - requests[0].row
                sound[first : first + len(request.crops)] = False
                self._on_broken(int(self._missing.images[crops[first]]), looked.broken)
                self.on_crops(len(request.crops))
        return sound

    def write(self, crops: Ints, features: ImageFeatures) -> None:
        """Put what the tower made of the crops (n,) into the store."""
        encoding = self._store.encoding
        records = pack(compress(features, encoding.storage), encoding.record)
        self._store.append(self._missing.keys[crops], records)

    def _note(self, keys: Keys) -> None:
        """Take note of keys (n,) that are in the store now."""
        mine = self._sorted_keys
        at = np.searchsorted(mine, keys).clip(max=len(mine) - 1)
        self._there[self._by_key[at[mine[at] == keys]]] = True

    def _by_image(self, crops: Ints) -> Iterator[slice]:
        """The parts of `crops` (n,) that show one image each."""
        changes = np.flatnonzero(np.diff(self._missing.images[crops], prepend=-1, append=-1)).tolist()
        return (slice(first, last) for first, last in pairwise(changes))

    def _request(self, crops: Ints, row: int, room: int) -> Request:
        """The crops (n,) of one image, to go into the rows from `row` on."""
        keys = split_keys(self._missing.keys[crops])
        return Request(
            image=SplitImage(self._split, int(self._missing.images[crops[0]])),
            digest=bytes(keys["digest"][0]).ljust(DIGEST.itemsize, b"\0"),  # numpy cuts trailing zeros off
            crops=tuple(zip(keys["seed"].tolist(), keys["crop"].tolist(), strict=True)),
            transform=self._transform,
            row=row,
            room=room,
        )


def encode_crops(encoders: Sequence[Encoder], tower: Tower, decoders: Decoders, batch_size: int) -> int:
    """Send all that is missing through the tower, in one stream; return how many crops went through.

    `decoders` have room for `AHEAD` + 1 batches.
    """
    n_encoded = 0
    decoders.expect(sum(encoder.n_images for encoder in encoders))
    written: deque[Future[None]] = deque()
    with ThreadPoolExecutor(_WRITERS) as writers:  # checksums and the disk, while the tower works
        for encoder, crops, pixels, shown in _decoded(encoders, decoders, batch_size):
            features = tower(pixels, shown)
            while len(written) >= _WRITERS:
                written.popleft().result()
            written.append(writers.submit(encoder.write, crops, features))
            n_encoded += len(crops)
            encoder.on_crops(len(crops))
        while written:
            written.popleft().result()
    return n_encoded


def _decoded(
    encoders: Sequence[Encoder], decoders: Decoders, batch_size: int
) -> Iterator[tuple[Encoder, Ints, Tensor, list[Shown]]]:
    """Batches of crops: their numbers (n,) and their pixels (n, H, W, 3), which last until the next one.

    Where `decoders` have room for pictures, these (n, bytes), and what is to be seen of each.
    """
    batches = ((encoder, crops) for encoder in encoders for crops in encoder.batches(batch_size) if len(crops))
    free = deque(range(0, len(decoders.pixels), batch_size))  # rows where a batch fits in
    ahead: deque[tuple[Encoder, Ints, int, list[Request], Iterator[Looked]]] = deque()
    while True:
        for encoder, crops in islice(batches, AHEAD - len(ahead)):
            row = free.popleft()
            requests = encoder.requests(crops, row, decoders.room)
            ahead.append((encoder, crops, row, requests, decoders.submit(requests)))
        if not ahead:
            return
        encoder, crops, row, requests, looked = ahead.popleft()
        found = list(looked)
        sound = encoder.sound(crops, requests, found)
        if sound.any():
            pixels = torch.from_numpy(decoders.pixels[row : row + len(crops)])
            shown = [one for each in found for one in each.shown]
            yield encoder, crops[sound], pixels if sound.all() else pixels[torch.from_numpy(sound)], shown
        free.append(row)
