"""Partition schemes of the user's own: of files that he names, of packages that are installed."""

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

from fedotp._entry_points import bring, offered, origin
from fedotp._imports import import_named, source_of
from fedotp._text import one_line
from fedotp.errors import FedotpError

if TYPE_CHECKING:
    from fedotp.data.partition._partition import Client
    from fedotp.data.partition._settings import PartitionSettings
    from fedotp.data.sets import Dataset

GROUP = "fedotp.partitions"
"""The entry points by which an installed package brings schemes: `name = "package.module:function"`."""

Scheme = Callable[["Dataset", "PartitionSettings"], "Iterable[Client]"]

_brought: dict[str, EntryPoint] = {}


class Partitions(dict[str, Scheme]):
    """Schemes by name; what is assigned is looked at, and fedotp's own stay."""

    def __setitem__(self, name: str, scheme: Scheme) -> None:
        from fedotp.data.partition._settings import SCHEMES

        if not callable(scheme):
            raise FedotpError(
                f"PARTITIONS[{name!r}] must be a function of a data set and settings, not {one_line(repr(scheme), 80)}"
            )
        if name in SCHEMES:
            raise FedotpError(f"fedotp has a partition scheme {name} of its own; give yours another name")
        super().__setitem__(name, scheme)


PARTITIONS = Partitions()
"""Schemes that are not fedotp's own: functions of a data set and settings that return its clients."""


def find_scheme(name: str) -> Scheme | None:
    """The scheme of that name, imported if need be; None if there is none, or it is fedotp's own."""
    import_named()
    if name not in PARTITIONS and (brought := bring(GROUP, name, "partition scheme")):
        PARTITIONS[name], _brought[name] = brought
    return PARTITIONS.get(name)


def own_schemes() -> list[str]:
    """The names of all of them, those of installed packages included, which are not imported for it."""
    import_named()
    return list(dict.fromkeys([*PARTITIONS, *offered(GROUP)]))


def origin_of_scheme(name: str) -> dict[str, str]:
    """Where a scheme that is not fedotp's own came from, for records: package, module, file and its SHA-256."""
    scheme = find_scheme(name)
    return {} if scheme is None else origin(_brought.get(name)) | source_of(getattr(scheme, "__module__", ""))
