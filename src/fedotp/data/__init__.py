"""Data sets: readers of their layouts, registry, checks and downloads.

`partition` divides them among clients, `store` caches them as tokens. Names are imported on first use, which speeds up
the start of the command line and of decoding processes.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.data import partition as partition
    from fedotp.data import store as store
    from fedotp.data._check import check_dataset as check_dataset
    from fedotp.data._check import clipped_note as clipped_note
    from fedotp.data._dataset import Dataset as Dataset
    from fedotp.data._dataset import Split as Split
    from fedotp.data._download import DatasetInfo as DatasetInfo
    from fedotp.data._download import download as download
    from fedotp.data._image_files import IMAGE_SUFFIXES as IMAGE_SUFFIXES
    from fedotp.data._image_files import is_image as is_image
    from fedotp.data._lists import read_lines as read_lines
    from fedotp.data._names import coarse_labels as coarse_labels
    from fedotp.data._painted import painted as painted
    from fedotp.data._painted import windowed as windowed
    from fedotp.data._registry import DATASETS as DATASETS
    from fedotp.data._registry import bring_datasets as bring_datasets
    from fedotp.data._registry import dataset_info as dataset_info
    from fedotp.data._registry import default_root as default_root
    from fedotp.data._registry import find_dataset as find_dataset
    from fedotp.data._registry import load_dataset as load_dataset
    from fedotp.data._registry import origin_of_dataset as origin_of_dataset
    from fedotp.data._types import OnProgress as OnProgress

__getattr__, __dir__ = lazy_face(__name__)
