"""Partitions of a data set among clients, and the schemes that create them."""

from typing import TYPE_CHECKING

from fedotp._imports import lazy_face

if TYPE_CHECKING:
    from fedotp.data.partition._authors import other_images as other_images
    from fedotp.data.partition._partition import Client as Client
    from fedotp.data.partition._partition import Partition as Partition
    from fedotp.data.partition._schemes import make_partition as make_partition
    from fedotp.data.partition._settings import PARTITIONS as PARTITIONS
    from fedotp.data.partition._settings import SCHEMES as SCHEMES
    from fedotp.data.partition._settings import PartitionSettings as PartitionSettings
    from fedotp.data.partition._settings import find_scheme as find_scheme
    from fedotp.data.partition._settings import origin_of_scheme as origin_of_scheme

__getattr__, __dir__ = lazy_face(__name__)
