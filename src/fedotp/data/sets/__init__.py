"""Data sets: what one is, readers of the layouts they come in, where they are, their checks and downloads."""

from fedotp.data.sets._box import ImageZip
from fedotp.data.sets._check import Broken, CheckReport, broken_images, check_dataset, clipped_note, require_sound
from fedotp.data.sets._dataset import (
    SPLITS,
    Dataset,
    FileContents,
    ImageArray,
    ImageFiles,
    ImageRef,
    ImageSource,
    Split,
    SplitName,
)
from fedotp.data.sets._download import DatasetInfo, Resource, download
from fedotp.data.sets._folder import read_folder
from fedotp.data.sets._hf import from_hf, read_hf
from fedotp.data.sets._image_files import IMAGE_SUFFIXES, is_image
from fedotp.data.sets._names import coarse_labels, readable
from fedotp.data.sets._painted import painted, windowed
from fedotp.data.sets._registry import (
    DATASETS,
    bring_datasets,
    dataset_info,
    default_root,
    find_dataset,
    load_dataset,
    origin_of_dataset,
)

__all__ = [
    "DATASETS",
    "IMAGE_SUFFIXES",
    "SPLITS",
    "Broken",
    "CheckReport",
    "Dataset",
    "DatasetInfo",
    "FileContents",
    "ImageArray",
    "ImageFiles",
    "ImageRef",
    "ImageSource",
    "ImageZip",
    "Resource",
    "Split",
    "SplitName",
    "bring_datasets",
    "broken_images",
    "check_dataset",
    "clipped_note",
    "coarse_labels",
    "dataset_info",
    "default_root",
    "download",
    "find_dataset",
    "from_hf",
    "is_image",
    "load_dataset",
    "origin_of_dataset",
    "painted",
    "read_folder",
    "read_hf",
    "readable",
    "require_sound",
    "windowed",
]
