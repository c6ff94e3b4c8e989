"""Dividing a data set among clients: the schemes, what they make, and a picture of it.

Each part is imported when it is first used: the settings, which the command line knows, need no NumPy.
"""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.data.partition._authors import other_images
    from fedotp.data.partition._bubbles import plot_partition
    from fedotp.data.partition._flower import from_flower
    from fedotp.data.partition._partition import Client, Partition
    from fedotp.data.partition._schemes import make_partition
    from fedotp.data.partition._settings import PARTITIONS, SCHEMES, PartitionSettings, find_scheme, origin_of_scheme

__all__ = [
    "PARTITIONS",
    "SCHEMES",
    "Client",
    "Partition",
    "PartitionSettings",
    "find_scheme",
    "from_flower",
    "make_partition",
    "origin_of_scheme",
    "other_images",
    "plot_partition",
]

_PARTS = ["_settings", "_partition", "_authors", "_schemes", "_flower", "_bubbles"]

__getattr__, __dir__ = lazy_face(__name__, __all__, _PARTS)
