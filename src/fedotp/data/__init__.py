"""Data sets, their checks and downloads, the ways to divide them among clients, and the token store.

What needs torch (`encode` and its results) is imported when first used: the command line starts faster without.
"""

import importlib
from typing import TYPE_CHECKING

from fedotp.data._box import ImageZip
from fedotp.data._bubbles import plot_partition
from fedotp.data._catalog import DATASETS, DatasetInfo
from fedotp.data._check import Broken, CheckReport, check_dataset, require_sound
from fedotp.data._coarse import coarse_labels
from fedotp.data._dataset import Dataset, ImageArray, ImageFiles, ImageRef, ImageSource, OnProgress, Split
from fedotp.data._download import Resource, download
from fedotp.data._files import IMAGE_SUFFIXES, read_lines
from fedotp.data._folder import read_folder
from fedotp.data._hf import from_hf, read_hf
from fedotp.data._names import readable
from fedotp.data._partition import Client, Partition
from fedotp.data._registry import dataset_info, default_root, find_dataset, load_dataset
from fedotp.data._schemes import make_partition
from fedotp.data._settings import SCHEMES, PartitionSettings
from fedotp.data._store import TokenStore, default_store
from fedotp.data._store_cache import StoreInfo, list_stores, remove_stores, select_stores
from fedotp.data._store_format import Storage

if TYPE_CHECKING:
    from fedotp.data._encode import encode, encoding_of
    from fedotp.data._tokens import EncodedDataset, EncodedSplit
    from fedotp.data._tokens_storage import as_stored

_NEED_TORCH = {
    "EncodedDataset": "_tokens",
    "EncodedSplit": "_tokens",
    "as_stored": "_tokens_storage",
    "encode": "_encode",
    "encoding_of": "_encode",
}

__all__ = [
    "DATASETS",
    "IMAGE_SUFFIXES",
    "SCHEMES",
    "Broken",
    "CheckReport",
    "Client",
    "Dataset",
    "DatasetInfo",
    "EncodedDataset",
    "EncodedSplit",
    "ImageArray",
    "ImageFiles",
    "ImageRef",
    "ImageSource",
    "ImageZip",
    "OnProgress",
    "Partition",
    "PartitionSettings",
    "Resource",
    "Split",
    "Storage",
    "StoreInfo",
    "TokenStore",
    "as_stored",
    "check_dataset",
    "coarse_labels",
    "dataset_info",
    "default_root",
    "default_store",
    "download",
    "encode",
    "encoding_of",
    "find_dataset",
    "from_hf",
    "list_stores",
    "load_dataset",
    "make_partition",
    "plot_partition",
    "read_folder",
    "read_hf",
    "read_lines",
    "readable",
    "remove_stores",
    "require_sound",
    "select_stores",
]


def __getattr__(name: str) -> object:
    if name in _NEED_TORCH:
        return getattr(importlib.import_module(f"fedotp.data.{_NEED_TORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
