"""The token store: every view of every image goes through the image tower once and is read back ever after.

Each part is imported when it is first used: the command line and the decoding processes start faster without torch.
"""

from typing import TYPE_CHECKING

from fedotp._lazy import lazy_face

if TYPE_CHECKING:
    from fedotp.data.store._cache import StoreInfo, list_stores, remove_stores, select_stores
    from fedotp.data.store._content import content_of
    from fedotp.data.store._defaults import BATCH_SIZE, STORAGE, Storage
    from fedotp.data.store._encode import encode, encoding_of
    from fedotp.data.store._storage import as_stored
    from fedotp.data.store._store import TokenStore, default_store
    from fedotp.data.store._tokens import EncodedDataset, EncodedSplit

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

_PARTS = ["_defaults", "_format", "_store", "_cache", "_storage", "_tokens", "_content", "_encode"]

__getattr__, __dir__ = lazy_face(__name__, __all__, _PARTS)
