"""Where a run came from, without torch: its configuration for people, and the origin of code outside fedotp.

Nothing is imported because a run names it: only the user names code.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedotp._values import parse_toml
from fedotp.config import known_keys, known_methods
from fedotp.errors import FedotpError

if TYPE_CHECKING:  # they import torch, which commands that only show runs do not need
    from fedotp.config import Config
    from fedotp.methods import Method


@dataclass(frozen=True)
class Description:
    """The configuration of a run, to be read by people.

    Attributes:
        title: what was run, as `Config.title` says it.
        reference: the paper of the method.
        tables: the values of all keys by section, as `Config.to_dict` gives them.
    """

    title: str
    reference: str
    tables: dict[str, Any]

    @classmethod
    def of(cls, config: "Config") -> "Description":
        """The same of a configuration that was read."""
        return cls(config.title, config.method.reference, dict(config.to_dict()))


def describe(manifest: Mapping[str, Any], text: str) -> Description | None:
    """What the manifest says, if config.toml (`text`) still says the same and all of it is of this version.

    None if not, or if the method is not fedotp's: reading the configuration itself then shows what is wrong.
    """
    tables, method = manifest.get("config"), manifest.get("method")
    if not isinstance(tables, dict) or not isinstance(method, dict) or "origin" in method:
        return None
    try:
        name = tables["method"]["name"]
        if name not in known_methods() or _keys(tables) != known_keys(name).keys():
            return None
        if parse_toml(text) != _without_none(tables):
            return None
        return Description(method["title"], method["reference"], tables)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _keys(tables: Mapping[str, Any]) -> set[str]:
    tables_in = {key: value for key, value in tables.items() if isinstance(value, dict)}
    return {*(tables.keys() - tables_in), *(f"{key}.{name}" for key, table in tables_in.items() for name in table)}


def _without_none(tables: Mapping[str, Any]) -> dict[str, Any]:
    """As TOML has it, which has no value for none."""
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in tables.items()
        if value is not None
    }


class MissingMethodError(FedotpError):
    """A run whose method, or partition scheme, is not among those that are installed or named by the user.

    `what` says which, and what brings it; the same for all runs of a method.
    """

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path}: {what}")
        self.what = what


def require_method(manifest: Mapping[str, Any], path: Path) -> None:
    """Refuse the run at `path` if its method or its partition scheme is not here, with the option that brings it."""
    from fedotp.data.partition import SCHEMES, find_scheme
    from fedotp.methods import find_method

    config = manifest.get("config", {})
    name, scheme = config.get("method", {}).get("name"), config.get("partition", {}).get("scheme")
    if isinstance(name, str) and find_method(name) is None:
        raise MissingMethodError(path, f"the method {name} is not here; {_remedy(_origin(manifest))}")
    if isinstance(scheme, str) and scheme not in SCHEMES and find_scheme(scheme) is None:
        origins = manifest.get("origins")
        remedy = _remedy(_texts(origins.get("partition") if isinstance(origins, dict) else None))
        raise MissingMethodError(path, f"the partition scheme {scheme} is not here; {remedy}")


def require_same_code(manifest: Mapping[str, Any], method: "Method", path: Path) -> None:
    """Refuse to go on with a run whose method has been edited since: its rounds would be of two methods."""
    from fedotp.methods import origin_of

    before, now = _origin(manifest), origin_of(type(method))
    if "sha256" in before and "sha256" in now and before["sha256"] != now["sha256"]:
        raise FedotpError(
            f"{path}: its method {method.name} was edited: {now['file']} has SHA-256 {now['sha256'][:12]} now, and the "
            f"run began with {before['sha256'][:12]}; put it back, or begin a new run"
        )


def _origin(manifest: Mapping[str, Any]) -> dict[str, str]:
    method = manifest.get("method")
    return _texts(method.get("origin") if isinstance(method, dict) else None)


def _texts(origin: object) -> dict[str, str]:
    return {key: str(value) for key, value in origin.items()} if isinstance(origin, dict) else {}


def _remedy(origin: Mapping[str, str]) -> str:
    if "package" in origin:
        return f"install {origin['package']}, which it came with"
    if "." in (module := origin.get("module", "")):
        return f"give --import {shlex.quote(module)}, the module it came from"
    if file := origin.get("file"):
        return f"give --import {shlex.quote(file)}, the file it came from"
    return "give --import FILE.py, the file that declares it"
