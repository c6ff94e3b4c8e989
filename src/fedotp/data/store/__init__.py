"""The token store: every view of every image goes through the image tower once and is read back ever after.

Each part is imported when it is first used: the command line and the decoding processes start faster without torch.
"""

from typing import TYPE_CHECKING, Literal

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.data.store._cache import StoreInfo, list_stores, remove_stores, select_stores
    from fedotp.data.store._content import content_of
    from fedotp.data.store._encode import encode, encoding_of
    from fedotp.data.store._store import TokenStore, default_store
    from fedotp.data.store._tokens import EncodedDataset, EncodedSplit, as_stored

__all__ = [
    "BATCH_SIZE",
    "STORAGE",
    "EncodedDataset",
    "EncodedSplit",
    "Storage",
    "StoreInfo",
    "TokenStore",
    "as_stored",
    "content_of",
    "default_store",
    "encode",
    "encoding_of",
    "list_stores",
    "remove_stores",
    "select_stores",
]

Storage = Literal["float16", "int8"]

# How images are encoded where nothing else is asked for.
STORAGE: Storage = "float16"
BATCH_SIZE = 64  # views in a step of the tower

_PARTS = ["_format", "_store", "_cache", "_tokens", "_content", "_encode"]

__getattr__, __dir__ = lazy_face(__name__, __all__, _PARTS)
