"""The views that a store lacks: decoded ahead, through the image tower, into the store."""

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
from fedotp.data._types import Ints
from fedotp.data.sets import Split
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
    """m views to be encoded: the image and the key of each (m,), views of one image next to each other."""

    images: Ints
    keys: Keys

    @classmethod
    def of(cls, keys: Keys, wanted: NDArray[np.bool_]) -> "Missing":
        """The `wanted` (k, n) among the views with these keys (k, n), each key once."""
        images, views = np.nonzero(wanted.T)
        _, first = np.unique(keys[views, images], return_index=True)
        first.sort()
        return cls(images[first], keys[views[first], images[first]])


class Encoder:
    """The missing views of one split, on their way into one store.

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
        on_views: Callable[[int], object],
        on_broken: Callable[[int, str], object],
    ) -> None:
        """`on_views` is told of views done, `on_broken` of images that cannot be decoded."""
        self._missing, self._split, self._store, self._transform = missing, split, store, transform
        self.on_views, self._on_broken = on_views, on_broken
        self._by_key = np.argsort(missing.keys)
        self._sorted_keys = missing.keys[self._by_key]
        self._there = np.zeros(len(missing.keys), bool)  # written by another process

    @property
    def n_images(self) -> int:
        """Images of which a view is missing."""
        return len(np.unique(self._missing.images))

    def batches(self, batch_size: int) -> Iterator[Ints]:
        """The numbers (n,) of views to be encoded, a batch at a time."""
        starts = list(range(0, len(self._missing.keys), batch_size))
        random.SystemRandom().shuffle(starts)
        for start in starts:
            batch = np.arange(start, min(start + batch_size, len(self._missing.keys)))
            self._note(self._store.refresh())
            todo = batch[~self._there[batch]]
            self.on_views(len(batch) - len(todo))
            yield todo

    def requests(self, views: Ints, row: int, room: int = 0) -> list[Request]:
        """What is to be decoded for the views (n,), into the rows from `row` on, which may have room for pictures."""
        return [self._request(views[part], row + part.start, room) for part in self._by_image(views)]

    def sound(self, views: Ints, requests: Sequence[Request], found: Iterable[Looked]) -> NDArray[np.bool_]:
        """Which of the views (n,) can be seen, now that their images were looked at."""
        sound = np.ones(len(views), bool)
        for request, looked in zip(requests, found, strict=True):
            if looked.broken:
                first = request.row - requests[0].row
                sound[first : first + len(request.views)] = False
                self._on_broken(int(self._missing.images[views[first]]), looked.broken)
                self.on_views(len(request.views))
        return sound

    def write(self, views: Ints, features: ImageFeatures) -> None:
        """Put what the tower made of the views (n,) into the store."""
        encoding = self._store.encoding
        records = pack(compress(features, encoding.storage), encoding.record)
        self._store.append(self._missing.keys[views], records)

    def _note(self, keys: Keys) -> None:
        """Take note of keys (n,) that are in the store now."""
        mine = self._sorted_keys
        at = np.searchsorted(mine, keys).clip(max=len(mine) - 1)
        self._there[self._by_key[at[mine[at] == keys]]] = True

    def _by_image(self, views: Ints) -> Iterator[slice]:
        """The parts of `views` (n,) that show one image each."""
        changes = np.flatnonzero(np.diff(self._missing.images[views], prepend=-1, append=-1)).tolist()
        return (slice(first, last) for first, last in pairwise(changes))

    def _request(self, views: Ints, row: int, room: int) -> Request:
        """The views (n,) of one image, to go into the rows from `row` on."""
        keys = split_keys(self._missing.keys[views])
        return Request(
            image=SplitImage(self._split, int(self._missing.images[views[0]])),
            digest=bytes(keys["digest"][0]).ljust(DIGEST.itemsize, b"\0"),  # numpy cuts trailing zeros off
            views=tuple(zip(keys["seed"].tolist(), keys["view"].tolist(), strict=True)),
            transform=self._transform,
            row=row,
            room=room,
        )


def encode_views(encoders: Sequence[Encoder], tower: Tower, decoders: Decoders, batch_size: int) -> int:
    """Send all that is missing through the tower, in one stream; return how many views went through.

    `decoders` have room for `AHEAD` + 1 batches.
    """
    n_encoded = 0
    decoders.expect(sum(encoder.n_images for encoder in encoders))
    written: deque[Future[None]] = deque()
    with ThreadPoolExecutor(_WRITERS) as writers:  # checksums and the disk, while the tower works
        for encoder, views, pixels, shown in _decoded(encoders, decoders, batch_size):
            features = tower(pixels, shown)
            while len(written) >= _WRITERS:
                written.popleft().result()
            written.append(writers.submit(encoder.write, views, features))
            n_encoded += len(views)
            encoder.on_views(len(views))
        while written:
            written.popleft().result()
    return n_encoded


def _decoded(
    encoders: Sequence[Encoder], decoders: Decoders, batch_size: int
) -> Iterator[tuple[Encoder, Ints, Tensor, list[Shown]]]:
    """Batches of views: their numbers (n,) and their pixels (n, H, W, 3), which last until the next one.

    Where `decoders` have room for pictures, these (n, bytes), and what is to be seen of each.
    """
    batches = ((encoder, views) for encoder in encoders for views in encoder.batches(batch_size) if len(views))
    free = deque(range(0, len(decoders.pixels), batch_size))  # rows where a batch fits in
    ahead: deque[tuple[Encoder, Ints, int, list[Request], Iterator[Looked]]] = deque()
    while True:
        for encoder, views in islice(batches, AHEAD - len(ahead)):
            row = free.popleft()
            requests = encoder.requests(views, row, decoders.room)
            ahead.append((encoder, views, row, requests, decoders.submit(requests)))
        if not ahead:
            return
        encoder, views, row, requests, looked = ahead.popleft()
        found = list(looked)
        sound = encoder.sound(views, requests, found)
        if sound.any():
            pixels = torch.from_numpy(decoders.pixels[row : row + len(views)])
            shown = [one for each in found for one in each.shown]
            yield encoder, views[sound], pixels if sound.all() else pixels[torch.from_numpy(sound)], shown
        free.append(row)
