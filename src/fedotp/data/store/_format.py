"""What one folder of the token store holds, byte by byte.

    <root>/<fingerprint>/encoding.json   what the records are: backbone, transform, storage, shapes
    <root>/<fingerprint>/<shard>.records  64 bytes of header, then records of a fixed size
    <root>/<fingerprint>/<shard>.index    64 bytes of header, then one entry per record, in the same order

A header is 32 bytes of magic and the folder's fingerprint. An entry is the key of the record (what was
encoded), the checksum of the record, and the checksum of the entry itself. The fingerprint is the SHA-256 of
`encoding.json`'s facts, so records of other weights, transforms or shapes never meet in one folder.
"""

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fedotp.data._types import Ints
from fedotp.data.store import Storage
from fedotp.errors import FedotpError

Digests = NDArray[np.bytes_]  # (n,) SHA-256 of the content of images, as S32
Keys = NDArray[np.bytes_]  # (n,) keys of records, as S48
Records = NDArray[np.void]  # (n,) records, with the fields of `Encoding.record`

DIGEST = np.dtype("S32")
KEY = np.dtype("S48")
ENTRY = np.dtype([("key", KEY), ("record_crc", "<u4"), ("entry_crc", "<u4")])
HEADER_SIZE = 64
_MOST_VALUES = 1 << 28  # in a record
RECORDS_MAGIC = b"fedotp token records 1\n".ljust(32)
INDEX_MAGIC = b"fedotp token index 1\n".ljust(32)

_KEY_PARTS = np.dtype([("digest", DIGEST), ("seed", "<u8"), ("crop", "<u8")])


@dataclass(frozen=True)
class Encoding:
    """How pictures became records.

    `backbone` is the digest of the weights and `tower` the rest of what fixes the image tower, as JSON;
    `transform` is the spec of the transform; `precision` the number format the tower ran in; `n_patches` (V)
    and `width` (e) are the shape of an image's tokens.
    """

    backbone: str
    tower: str
    transform: str
    precision: str
    storage: Storage
    n_patches: int
    width: int

    def __post_init__(self) -> None:
        if self.storage not in get_args(Storage):
            raise FedotpError(f"unknown storage {self.storage!r}; choose one of {', '.join(get_args(Storage))}")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all fields, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @cached_property
    def record(self) -> np.dtype[np.void]:
        """One record: pooled (e,) and tokens (V, e), for int8 with the size (V,) of a step of each token."""
        pooled = ("pooled", "<f2", (self.width,))
        if self.storage == "float16":
            return np.dtype([pooled, ("tokens", "<f2", (self.n_patches, self.width))])
        return np.dtype([pooled, ("step", "<f4", (self.n_patches,)), ("tokens", "i1", (self.n_patches, self.width))])

    def header(self, magic: bytes) -> bytes:
        """The first `HEADER_SIZE` bytes of a file of this encoding."""
        return magic + bytes.fromhex(self.fingerprint)

    def to_json(self) -> str:
        """Canonical JSON that `from_json` reads back."""
        return json.dumps({"format": 1, **asdict(self)}, sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Encoding":
        """Inverse of `to_json`."""
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.pop("format") != 1:
                raise ValueError("written by another version of fedotp")
            encoding = cls(**fields)
            texts = (encoding.backbone, encoding.tower, encoding.transform, encoding.precision)
            sizes = (encoding.n_patches, encoding.width)
            if not all(isinstance(value, str) for value in texts) or not all(type(size) is int for size in sizes):
                raise ValueError("a value is of the wrong type")
            if min(sizes) < 1 or encoding.n_patches * encoding.width > _MOST_VALUES:
                raise ValueError(f"{encoding.n_patches} patches of width {encoding.width}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FedotpError(f"not the description of a token store: {error}") from error
        return encoding


def make_keys(digests: Digests, *, seed: int, crop: int) -> Keys:
    """The keys of crop `crop` under `seed` of the images with these digests (n,); 0 and 0 for the plain crop."""
    parts = np.zeros(len(digests), _KEY_PARTS)
    parts["digest"], parts["seed"], parts["crop"] = digests, seed, crop
    return parts.view(KEY)


def split_keys(keys: Keys) -> NDArray[np.void]:
    """The fields `digest`, `seed` and `crop` of keys (n,)."""
    return np.ascontiguousarray(keys).view(_KEY_PARTS)


def make_entries(keys: Keys, records: Records) -> NDArray[np.void]:
    """The index entries of `records` (n,)."""
    entries = np.zeros(len(keys), ENTRY)
    entries["key"] = keys
    entries["record_crc"] = checksums(records)
    entries["entry_crc"] = _entry_checksums(entries)
    return entries


def intact(entries: NDArray[np.void]) -> Ints:
    """The positions of the entries (n,) that are as they were written."""
    return np.flatnonzero(entries["entry_crc"] == _entry_checksums(entries))


def checksums(values: NDArray[np.void]) -> NDArray[np.uint32]:
    """CRC-32 of each of n items."""
    raw, size = values.view(np.uint8).data, values.itemsize
    return np.fromiter((zlib.crc32(raw[i * size :][:size]) for i in range(len(values))), np.uint32)


def _entry_checksums(entries: NDArray[np.void]) -> NDArray[np.uint32]:
    unsigned = entries.copy()
    unsigned["entry_crc"] = 0
    return checksums(unsigned)
