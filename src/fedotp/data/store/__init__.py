"""The token store: a cache of image tower outputs for every crop of every image."""

from typing import TYPE_CHECKING, Literal

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.data.store._encode import encode as encode
    from fedotp.data.store._store import StoreInfo as StoreInfo
    from fedotp.data.store._store import default_store as default_store
    from fedotp.data.store._store import list_stores as list_stores
    from fedotp.data.store._store import remove_stores as remove_stores
    from fedotp.data.store._store import select_stores as select_stores
    from fedotp.data.store._tokens import EncodedDataset as EncodedDataset
    from fedotp.data.store._tokens import EncodedSplit as EncodedSplit
    from fedotp.data.store._tokens import as_stored as as_stored
    from fedotp.data.store._tower import content_of as content_of

__getattr__, __dir__ = lazy_face(__name__)

Storage = Literal["float16", "int8"]

# Defaults of encoding.
STORAGE: Storage = "float16"
BATCH_SIZE = 64  # crops in a step of the tower
