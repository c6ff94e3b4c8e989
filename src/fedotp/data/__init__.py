"""Data sets, their checks and downloads, the ways to divide them among clients, and the token store.

Each part is imported when it is first used: the command line and the decoding processes start faster without.
"""

from typing import TYPE_CHECKING

from fedotp._lazy import lazy_face

if TYPE_CHECKING:
    from fedotp.data._files import read_lines
    from fedotp.data._types import OnProgress
    from fedotp.data.partition import (
        SCHEMES,
        Client,
        Partition,
        PartitionSettings,
        from_flower,
        make_partition,
        other_images,
        plot_partition,
    )
    from fedotp.data.sets import (
        DATASETS,
        IMAGE_SUFFIXES,
        Broken,
        CheckReport,
        Dataset,
        DatasetInfo,
        ImageArray,
        ImageFiles,
        ImageRef,
        ImageSource,
        ImageZip,
        Resource,
        Split,
        check_dataset,
        coarse_labels,
        dataset_info,
        default_root,
        download,
        find_dataset,
        from_hf,
        is_image,
        load_dataset,
        read_folder,
        read_hf,
        readable,
        require_sound,
    )
    from fedotp.data.store import (
        STORAGE,
        EncodedDataset,
        EncodedSplit,
        Storage,
        StoreInfo,
        TokenStore,
        as_stored,
        default_store,
        encode,
        encoding_of,
        list_stores,
        remove_stores,
        select_stores,
    )

__all__ = [
    "DATASETS",
    "IMAGE_SUFFIXES",
    "SCHEMES",
    "STORAGE",
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
    "from_flower",
    "from_hf",
    "is_image",
    "list_stores",
    "load_dataset",
    "make_partition",
    "other_images",
    "plot_partition",
    "read_folder",
    "read_hf",
    "read_lines",
    "readable",
    "remove_stores",
    "require_sound",
    "select_stores",
]

__getattr__, __dir__ = lazy_face(__name__, __all__, ["partition", "store", "_files", "sets", "_types"])
