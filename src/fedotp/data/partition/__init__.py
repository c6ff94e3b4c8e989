"""Dividing a data set among clients: the schemes, what they make, and a picture of it."""

from fedotp.data.partition._bubbles import plot_partition
from fedotp.data.partition._partition import Client, Partition
from fedotp.data.partition._schemes import make_partition
from fedotp.data.partition._settings import SCHEMES, PartitionSettings

__all__ = [
    "SCHEMES",
    "Client",
    "Partition",
    "PartitionSettings",
    "make_partition",
    "plot_partition",
]
