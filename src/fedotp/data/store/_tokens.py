"""Data sets as tokens: storage formats of features, and reading from a store.

float16 keeps 11 bits of every number. int8 stores a token as multiples, from -127 to 127, of its own step, with an
error of at most half a step: 1/254 of the token's largest component.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedotp._text import counted
from fedotp.clip import ImageFeatures
from fedotp.data._dataset import Dataset, SplitName
from fedotp.data._types import Ints
from fedotp.data.store import Storage
from fedotp.data.store._shard import DIGEST, Records, split_keys
from fedotp.data.store._store import TokenStore
from fedotp.errors import FedotpError

_DTYPES = {"<f2": torch.float16, "<f4": torch.float32, "|i1": torch.int8}


def compress(features: ImageFeatures, storage: Storage, *, check: bool = True) -> dict[str, Tensor]:
    """Return the fields of the records of n images: pooled (n, e), tokens (n, V, e), for int8 also step (n, V).

    With `check`, raise an error for numbers that cannot be stored; it must be off in an exported graph.
    """
    fields = {"pooled": features.pooled.half(), "tokens": features.tokens.half()}
    if check and not all(values.isfinite().all() for values in fields.values()):
        raise FedotpError(
            "the image tower's output is not finite or exceeds float16; check the weights, or run the tower in float32"
        )
    if storage == "int8":
        tokens = features.tokens.float()
        fields["step"] = tokens.abs().amax(dim=-1) / 127
        steps = fields["step"].where(fields["step"] > 0, 1.0)
        fields["tokens"] = (tokens / steps[..., None]).round().clamp(-127, 127).to(torch.int8)
    return fields


def pack(fields: Mapping[str, Tensor], record: np.dtype[np.void]) -> Records:
    """Pack fields, each (n, *shape of the field), into records (n,), with one copy from their device."""
    parts = [fields[name].contiguous().flatten(1).view(torch.uint8) for name in record.names or ()]
    return torch.cat(parts, dim=1).cpu().numpy().view(record)[:, 0]


def unpack(records: Records, device: str | torch.device) -> dict[str, Tensor]:
    """Unpack records (...) into fields (..., *shape of the field), with one copy to `device`."""
    raw = torch.from_numpy(records.ravel().view(np.uint8).reshape(records.size, -1)).to(device)  # (n, bytes)
    fields = {}
    for name, (field, offset, *_) in (records.dtype.fields or {}).items():
        dtype = _DTYPES[field.base.str]
        part = raw[:, offset : offset + field.itemsize]
        if offset % dtype.itemsize or raw.shape[1] % dtype.itemsize:  # misaligned
            part = part.clone(memory_format=torch.contiguous_format)
        fields[name] = part.view(dtype).view(*records.shape, *field.shape)
    return fields


def restore(fields: Mapping[str, Tensor], dtype: torch.dtype) -> ImageFeatures:
    """Invert `compress`, up to rounding."""
    tokens = fields["tokens"]
    if "step" in fields:
        tokens = tokens * fields["step"][..., None]  # in float32
    return ImageFeatures(pooled=fields["pooled"].to(dtype).contiguous(), tokens=tokens.to(dtype).contiguous())


def as_stored(features: ImageFeatures, storage: Storage, dtype: torch.dtype, *, check: bool = True) -> ImageFeatures:
    """Return features as a store would return them; `check` as for `compress`."""
    return restore(compress(features, storage, check=check), dtype)


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """The features of n images in k crops; `records` (k, n) are their numbers in `store`."""

    store: TokenStore
    records: Ints

    def __repr__(self) -> str:
        return f"<EncodedSplit: {counted(len(self), 'image')}, {counted(self.n_crops, 'crop')} of each>"

    def __len__(self) -> int:
        return self.records.shape[1]

    @property
    def n_crops(self) -> int:
        """Number of crops of every image: 1, or the number of random crops."""
        return self.records.shape[0]

    @cached_property
    def contents(self) -> list[bytes]:
        """Digests of all images' contents, as of `content_of`."""
        digests = split_keys(self.store.keys(self.records[0]))["digest"]
        return [bytes(each).ljust(DIGEST.itemsize, b"\0") for each in digests]  # NumPy strips trailing zeros

    def read(
        self,
        indices: ArrayLike | torch.Tensor,
        crop: ArrayLike | torch.Tensor = 0,
        *,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        tokens: bool = True,
    ) -> ImageFeatures:
        """Read the features of the images `indices` (...), in the crop(s) `crop`, a number or one per image.

        Returns pooled (..., e) and tokens (..., V, e). They are copied to `device` as stored and converted to `dtype`
        there. Without `tokens` only the pooled features are read, and V is 0.

        >>> encoded.train.read(batch).tokens.shape  # batch (C, B), one row per client   # doctest: +SKIP
        torch.Size([10, 32, 196, 512])
        """
        numbers = self.records[np.asarray(crop), np.asarray(indices)]
        if tokens:
            return restore(unpack(self.store.gather(numbers), device), dtype)
        pooled = torch.from_numpy(self.store.gather(numbers, "pooled")).to(device).to(dtype)
        return ImageFeatures(pooled, pooled.new_empty(*pooled.shape[:-1], 0, pooled.shape[-1]))


@dataclass(frozen=True, eq=False)
class EncodedDataset:
    """`dataset` and its tokens; image i of `dataset.train` is image i of `train`, and likewise for `test`.

    `n_encoded` crops were encoded for it; `n_repaired` of these were in the store, but corrupt.
    """

    dataset: Dataset
    train: EncodedSplit
    test: EncodedSplit
    n_encoded: int
    n_repaired: int

    @cached_property
    def content(self) -> str:
        """SHA-256 of the contents of all images, in order: equal only if every image has the same bytes."""
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
