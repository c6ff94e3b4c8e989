"""What a run is, as its files say: enough to list and to show it without the code of its method and without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedotp._toml import parse_toml
from fedotp.config import known_keys, known_methods

if TYPE_CHECKING:
    from fedotp.config import Config


@dataclass(frozen=True)
class Told:
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
    def by(cls, config: "Config") -> "Told":
        """The same of a configuration that was read."""
        return cls(config.title, config.method.reference, dict(config.to_dict()))


def told_by_files(manifest: Mapping[str, Any], text: str) -> Told | None:
    """What the manifest says, where config.toml (`text`) still says the same and all of it is of this version.

    None where that is not so, or the method is not fedotp's own: whoever reads the configuration knows what is wrong.
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
        return Told(method["title"], method["reference"], tables)
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
