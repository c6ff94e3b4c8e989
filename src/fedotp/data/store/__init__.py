"""The token store: every view of every image goes through the image tower once and is read back ever after.

What needs torch (`encode` and its results) is imported when first used: the command line starts faster without.
"""

import importlib
from typing import TYPE_CHECKING

from fedotp.data.store._cache import StoreInfo, list_stores, remove_stores, select_stores
from fedotp.data.store._defaults import BATCH_SIZE, STORAGE
from fedotp.data.store._format import Storage
from fedotp.data.store._store import TokenStore, default_store

if TYPE_CHECKING:
    from fedotp.data.store._encode import encode, encoding_of
    from fedotp.data.store._storage import as_stored
    from fedotp.data.store._tokens import EncodedDataset, EncodedSplit

_NEED_TORCH = {
    "EncodedDataset": "_tokens",
    "EncodedSplit": "_tokens",
    "as_stored": "_storage",
    "encode": "_encode",
    "encoding_of": "_encode",
}

__all__ = [
    "BATCH_SIZE",
    "STORAGE",
    "EncodedDataset",
    "EncodedSplit",
    "Storage",
    "StoreInfo",
    "TokenStore",
    "as_stored",
    "default_store",
    "encode",
    "encoding_of",
    "list_stores",
    "remove_stores",
    "select_stores",
]


def __getattr__(name: str) -> object:
    if name in _NEED_TORCH:
        return getattr(importlib.import_module(f"fedotp.data.store.{_NEED_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
