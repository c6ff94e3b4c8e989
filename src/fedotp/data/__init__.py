"""Data sets, their checks and downloads, the ways to divide them among clients, and the token store.

Each part is imported when it is first used: the command line and the decoding processes start faster without.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.data._lists import read_lines as read_lines
    from fedotp.data._types import OnProgress as OnProgress
    from fedotp.data.partition import PARTITIONS as PARTITIONS
    from fedotp.data.partition import SCHEMES as SCHEMES
    from fedotp.data.partition import Client as Client
    from fedotp.data.partition import Partition as Partition
    from fedotp.data.partition import PartitionSettings as PartitionSettings
    from fedotp.data.partition import find_scheme as find_scheme
    from fedotp.data.partition import from_flower as from_flower
    from fedotp.data.partition import make_partition as make_partition
    from fedotp.data.partition import origin_of_scheme as origin_of_scheme
    from fedotp.data.partition import other_images as other_images
    from fedotp.data.partition import plot_partition as plot_partition
    from fedotp.data.sets import DATASETS as DATASETS
    from fedotp.data.sets import IMAGE_SUFFIXES as IMAGE_SUFFIXES
    from fedotp.data.sets import Broken as Broken
    from fedotp.data.sets import CheckReport as CheckReport
    from fedotp.data.sets import Dataset as Dataset
    from fedotp.data.sets import DatasetInfo as DatasetInfo
    from fedotp.data.sets import ImageArray as ImageArray
    from fedotp.data.sets import ImageFiles as ImageFiles
    from fedotp.data.sets import ImageRef as ImageRef
    from fedotp.data.sets import ImageSource as ImageSource
    from fedotp.data.sets import ImageZip as ImageZip
    from fedotp.data.sets import Resource as Resource
    from fedotp.data.sets import Split as Split
    from fedotp.data.sets import bring_datasets as bring_datasets
    from fedotp.data.sets import check_dataset as check_dataset
    from fedotp.data.sets import clipped_note as clipped_note
    from fedotp.data.sets import coarse_labels as coarse_labels
    from fedotp.data.sets import dataset_info as dataset_info
    from fedotp.data.sets import default_root as default_root
    from fedotp.data.sets import download as download
    from fedotp.data.sets import find_dataset as find_dataset
    from fedotp.data.sets import from_hf as from_hf
    from fedotp.data.sets import is_image as is_image
    from fedotp.data.sets import load_dataset as load_dataset
    from fedotp.data.sets import origin_of_dataset as origin_of_dataset
    from fedotp.data.sets import painted as painted
    from fedotp.data.sets import read_folder as read_folder
    from fedotp.data.sets import read_hf as read_hf
    from fedotp.data.sets import readable as readable
    from fedotp.data.sets import require_sound as require_sound
    from fedotp.data.sets import windowed as windowed
    from fedotp.data.store import STORAGE as STORAGE
    from fedotp.data.store import EncodedDataset as EncodedDataset
    from fedotp.data.store import EncodedSplit as EncodedSplit
    from fedotp.data.store import Storage as Storage
    from fedotp.data.store import StoreInfo as StoreInfo
    from fedotp.data.store import TokenStore as TokenStore
    from fedotp.data.store import as_stored as as_stored
    from fedotp.data.store import content_of as content_of
    from fedotp.data.store import default_store as default_store
    from fedotp.data.store import encode as encode
    from fedotp.data.store import encoding_of as encoding_of
    from fedotp.data.store import list_stores as list_stores
    from fedotp.data.store import remove_stores as remove_stores
    from fedotp.data.store import select_stores as select_stores

__getattr__, __dir__ = lazy_face(__name__)
