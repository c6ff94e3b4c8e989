"""The origin of external code used in a run. Code named by a run is never imported automatically."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedotp.errors import FedotpError

if TYPE_CHECKING:  # they import torch, which commands that only show runs do not need
    from fedotp.methods import Method


def require_method(manifest: Mapping[str, Any], path: Path) -> None:
    """Raise an error, with the option to give, if the method or partition scheme of the run at `path` is unknown."""
    from fedotp.data.partition import SCHEMES, find_scheme
    from fedotp.methods import find_method

    config = manifest.get("config", {})
    name, scheme = config.get("method", {}).get("name"), config.get("partition", {}).get("scheme")
    if isinstance(name, str) and find_method(name) is None:
        raise FedotpError(f"{path}: unknown method {name}; {_remedy(_origin(manifest))}")
    if isinstance(scheme, str) and scheme not in SCHEMES and find_scheme(scheme) is None:
        origins = manifest.get("origins")
        remedy = _remedy(_texts(origins.get("partition") if isinstance(origins, dict) else None))
        raise FedotpError(f"{path}: unknown partition scheme {scheme}; {remedy}")


def require_same_code(manifest: Mapping[str, Any], method: "Method", path: Path) -> None:
    """Raise an error if a run's method was edited after the run started."""
    from fedotp.methods import origin_of

    before, now = _origin(manifest), origin_of(type(method))
    if "sha256" in before and "sha256" in now and before["sha256"] != now["sha256"]:
        raise FedotpError(
            f"{path}: its method {method.name} was edited: expected SHA-256 {before['sha256'][:12]} of {now['file']}, "
            f"got {now['sha256'][:12]}; restore the file or start a new run"
        )


def _origin(manifest: Mapping[str, Any]) -> dict[str, str]:
    method = manifest.get("method")
    return _texts(method.get("origin") if isinstance(method, dict) else None)


def _texts(origin: object) -> dict[str, str]:
    return {key: str(value) for key, value in origin.items()} if isinstance(origin, dict) else {}


def _remedy(origin: Mapping[str, str]) -> str:
    if "package" in origin:
        return f"install {origin['package']}, which defines it"
    if "." in (module := origin.get("module", "")):
        return f"give --import {shlex.quote(module)}, which defines it"
    return f"give --import {shlex.quote(origin.get('file', 'FILE.py'))}, which defines it"
