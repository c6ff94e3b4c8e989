"""A data set whose images are tokens: what training and evaluation read."""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike

from fedotp._text import counted
from fedotp.clip import ImageFeatures
from fedotp.data._types import Ints
from fedotp.data.sets import Dataset, SplitName
from fedotp.data.store._format import DIGEST, split_keys
from fedotp.data.store._storage import restore, unpack
from fedotp.data.store._store import TokenStore


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """The features of n images in k views; `records` (k, n) are their numbers in `store`."""

    store: TokenStore
    records: Ints

    def __repr__(self) -> str:
        return f"<EncodedSplit: {counted(len(self), 'image')}, {counted(self.n_views, 'view')} of each>"

    def __len__(self) -> int:
        """Return the number of images."""
        return self.records.shape[1]

    @property
    def n_views(self) -> int:
        """Views of every image: 1, or the number of random crops drawn ahead."""
        return self.records.shape[0]

    @cached_property
    def contents(self) -> list[bytes]:
        """The digest of every image's content, as of `content_of`."""
        digests = split_keys(self.store.keys(self.records[0]))["digest"]
        return [bytes(each).ljust(DIGEST.itemsize, b"\0") for each in digests]  # numpy cuts trailing zeros off

    def read(
        self,
        indices: ArrayLike | torch.Tensor,
        view: ArrayLike | torch.Tensor = 0,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        tokens: bool = True,
    ) -> ImageFeatures:
        """The features of the images `indices` (...), in the view(s) `view`, a number or one per image.

        Returns pooled (..., e) and tokens (..., V, e). They travel to `device` as they are stored and take
        on `dtype` there. Without `tokens` only the pooled features are read, and V is 0.

        >>> encoded.train.read(batch).tokens.shape  # batch (C, B), one row per client   # doctest: +SKIP
        torch.Size([10, 32, 196, 512])
        """
        numbers = self.records[np.asarray(view), np.asarray(indices)]
        if tokens:
            return restore(unpack(self.store.gather(numbers), device), dtype)
        pooled = torch.from_numpy(self.store.gather_field(numbers, "pooled")).to(device).to(dtype)
        return ImageFeatures(pooled, pooled.new_empty(*pooled.shape[:-1], 0, pooled.shape[-1]))


@dataclass(frozen=True, eq=False)
class EncodedDataset:
    """`dataset` and its tokens; image i of `dataset.train` is image i of `train`, and so for `test`.

    `n_encoded` views went through the tower for it; `n_repaired` were in the store, but damaged.
    """

    dataset: Dataset
    train: EncodedSplit
    test: EncodedSplit
    n_encoded: int
    n_repaired: int

    @cached_property
    def content(self) -> str:
        """SHA-256 over the contents of all images, in order: equal only where every image has the same bytes."""
        sha = hashlib.sha256()
        for split in (self.train, self.test):
            sha.update(split.store.keys(split.records).tobytes())
        return sha.hexdigest()

    def select_train(self, rows: Ints) -> "EncodedDataset":
        """Return the training images at the positions `rows`, in that order, and all test images."""
        dataset = replace(self.dataset, train=self.dataset.train.select(rows))
        return replace(self, dataset=dataset, train=replace(self.train, records=self.train.records[:, rows]))

    def split(self, name: SplitName) -> EncodedSplit:
        """Return the split called `name`."""
        return self.train if name == "train" else self.test
