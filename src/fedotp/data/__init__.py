"""Data sets, their checks and downloads, and the ways to divide them among clients."""

from fedotp.data._bubbles import plot_partition
from fedotp.data._catalog import DATASETS, DatasetInfo
from fedotp.data._check import Broken, CheckReport, check_dataset, require_sound
from fedotp.data._dataset import Dataset, ImageArray, ImageFiles, ImageRef, ImageSource, Split
from fedotp.data._download import Resource, download
from fedotp.data._folder import read_folder
from fedotp.data._hf import from_hf, read_hf
from fedotp.data._names import readable
from fedotp.data._partition import Client, Partition
from fedotp.data._registry import dataset_info, default_root, find_dataset, load_dataset
from fedotp.data._schemes import make_partition
from fedotp.data._settings import SCHEMES, PartitionSettings

__all__ = [
    "DATASETS",
    "SCHEMES",
    "Broken",
    "CheckReport",
    "Client",
    "Dataset",
    "DatasetInfo",
    "ImageArray",
    "ImageFiles",
    "ImageRef",
    "ImageSource",
    "Partition",
    "PartitionSettings",
    "Resource",
    "Split",
    "check_dataset",
    "dataset_info",
    "default_root",
    "download",
    "find_dataset",
    "from_hf",
    "load_dataset",
    "make_partition",
    "plot_partition",
    "read_folder",
    "read_hf",
    "readable",
    "require_sound",
]
