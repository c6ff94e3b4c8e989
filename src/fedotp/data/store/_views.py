"""The views that a store lacks: decoded by threads, through the image tower, into the store."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedotp._images import reason
from fedotp.clip import CLIP, EvalTransform, ImageFeatures, TrainTransform
from fedotp.data._types import Ints
from fedotp.data.sets import Split
from fedotp.data.store._content import content_digest
from fedotp.data.store._format import DIGEST, Keys, split_keys
from fedotp.data.store._storage import compress
from fedotp.data.store._store import TokenStore
from fedotp.errors import FedotpError

_AHEAD = 3  # batches being decoded while the tower works on one


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


@dataclass(frozen=True)
class Tower:
    """An image tower, run in `precision` where that is not the precision of its weights."""

    clip: CLIP
    precision: torch.dtype | None = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.clip.text_projection.device

    def room_for(self, n: int) -> Tensor:
        """Empty pixels (n, 3, H, W), in memory that a GPU can fetch from by itself."""
        size = self.clip.config.image_size
        return torch.empty(n, 3, size, size, pin_memory=self.device.type == "cuda")

    def __call__(self, pixels: Tensor) -> ImageFeatures:
        """Pixels (n, 3, H, W) to features on the device of the weights."""
        mixed = self.precision is not None
        with torch.no_grad(), torch.autocast(self.device.type, self.precision, enabled=mixed):
            return self.clip.encode_image(pixels.to(self.device, non_blocking=True))


def view_rng(digest: bytes, *, seed: int, view: int) -> random.Random:
    """The chance in view number `view` of the image with this digest, the same on every platform."""
    return random.Random(int.from_bytes(sha256(f"{seed} {view} ".encode() + digest).digest(), "big"))


class Encoder:
    """Encodes the missing views of one split into one store.

    Processes that encode the same images at once share the work: each visits the batches in an order of its
    own and leaves out what others have written meanwhile.
    """

    def __init__(
        self,
        missing: Missing,
        split: Split,
        store: TokenStore,
        transform: EvalTransform | TrainTransform,
        tower: Tower,
    ) -> None:
        self._missing, self._split, self._store = missing, split, store
        self._transform, self._tower = transform, tower
        self._by_key = np.argsort(missing.keys)
        self._sorted_keys = missing.keys[self._by_key]
        self._there = np.zeros(len(missing.keys), bool)  # written by another process

    def run(
        self,
        *,
        batch_size: int,
        pool: Executor,
        on_views: Callable[[int], object],
        on_broken: Callable[[int, str], object],
    ) -> int:
        """Encode, and return how many views went through the tower.

        `pool` decodes. `on_views` is told of views done, `on_broken` of images that cannot be decoded.
        """
        n_encoded = 0
        written: Future[None] | None = None
        with ThreadPoolExecutor(1) as writer:  # checksums and the disk, while the tower works
            for views, pixels in self._decoded(batch_size, pool, on_views, on_broken):
                features = self._tower(pixels)
                if written is not None:
                    written.result()
                written = writer.submit(self._write, views, features)
                n_encoded += len(views)
                on_views(len(views))
            if written is not None:
                written.result()
        return n_encoded

    def _decoded(
        self,
        batch_size: int,
        pool: Executor,
        on_views: Callable[[int], object],
        on_broken: Callable[[int, str], object],
    ) -> Iterator[tuple[Ints, Tensor]]:
        """Batches of views: their numbers (n,) among the missing and their pixels (n, 3, H, W)."""
        starts = list(range(0, len(self._missing.keys), batch_size))
        random.SystemRandom().shuffle(starts)
        ahead: deque[tuple[Ints, Tensor, list[tuple[slice, Future[None]]]]] = deque()
        while starts or ahead:
            while starts and len(ahead) < _AHEAD:
                start = starts.pop()
                batch = np.arange(start, min(start + batch_size, len(self._missing.keys)))
                self._note(self._store.refresh())
                todo = batch[~self._there[batch]]
                on_views(len(batch) - len(todo))
                pixels = self._tower.room_for(len(todo))
                jobs = [(rows, pool.submit(self._decode, todo[rows], pixels[rows])) for rows in self._by_image(todo)]
                ahead.append((todo, pixels, jobs))
            views, pixels, jobs = ahead.popleft()
            sound = np.ones(len(views), bool)
            for rows, decoded in jobs:
                try:
                    decoded.result()
                except FedotpError as error:
                    sound[rows] = False
                    on_broken(int(self._missing.images[views[rows.start]]), str(error))
                    on_views(rows.stop - rows.start)
            if sound.any():
                yield views[sound], pixels if sound.all() else pixels[torch.from_numpy(sound)]

    def _note(self, keys: Keys) -> None:
        """Take note of keys (n,) that are in the store now."""
        mine = self._sorted_keys
        at = np.searchsorted(mine, keys).clip(max=len(mine) - 1)
        self._there[self._by_key[at[mine[at] == keys]]] = True

    def _by_image(self, views: Ints) -> Iterator[slice]:
        """The parts of `views` (n,) that show one image each."""
        changes = np.flatnonzero(np.diff(self._missing.images[views], prepend=-1, append=-1)).tolist()
        return (slice(first, last) for first, last in pairwise(changes))

    def _decode(self, views: Ints, pixels: Tensor) -> None:
        """Fill in the pixels (n, 3, H, W) of n views of one image."""
        image = int(self._missing.images[views[0]])
        keys = split_keys(self._missing.keys[views])
        expected = bytes(keys["digest"][0]).ljust(DIGEST.itemsize, b"\0")  # numpy cuts trailing zeros off
        try:
            content = self._split.read(image)
            if content_digest(self._split.source, content) != expected:
                raise FedotpError("it was changed while it was being encoded")
            with self._split.decoded(content) as picture:
                for row, key in zip(pixels, keys, strict=True):
                    rng = view_rng(expected, seed=int(key["seed"]), view=int(key["view"]))
                    row.copy_(self._transform(picture, rng))
        except OSError as error:
            raise FedotpError(reason(error)) from error

    def _write(self, views: Ints, features: ImageFeatures) -> None:
        fields = compress(features, self._store.encoding.storage)
        records = self._store.encoding.pack({name: values.cpu().numpy() for name, values in fields.items()})
        self._store.append(self._missing.keys[views], records)
