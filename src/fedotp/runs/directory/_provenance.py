"""The origin of code outside fedotp that a run was made with. Nothing is imported because a run names it."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedotp.errors import FedotpError

if TYPE_CHECKING:  # they import torch, which commands that only show runs do not need
    from fedotp.methods import Method


def require_method(manifest: Mapping[str, Any], path: Path) -> None:
    """Refuse the run at `path` if its method or its partition scheme is not here, with the option that brings it."""
    from fedotp.data.partition import SCHEMES, find_scheme
    from fedotp.methods import find_method

    config = manifest.get("config", {})
    name, scheme = config.get("method", {}).get("name"), config.get("partition", {}).get("scheme")
    if isinstance(name, str) and find_method(name) is None:
        raise FedotpError(f"{path}: the method {name} is not here; {_remedy(_origin(manifest))}")
    if isinstance(scheme, str) and scheme not in SCHEMES and find_scheme(scheme) is None:
        origins = manifest.get("origins")
        remedy = _remedy(_texts(origins.get("partition") if isinstance(origins, dict) else None))
        raise FedotpError(f"{path}: the partition scheme {scheme} is not here; {remedy}")


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
