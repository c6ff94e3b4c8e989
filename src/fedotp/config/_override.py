"""`--set section.key=value`: from a command line's words to tables."""

from collections.abc import Sequence
from typing import Any, Literal, get_origin

from fedotp._values import Tables, Words, parse_toml, show
from fedotp.config._reading import Kind, bare_kind
from fedotp.config._schema import all_kinds, method_named, unknown_key
from fedotp.data.partition import SCHEMES, PartitionSettings, find_scheme
from fedotp.errors import FedotpError


def assigned(assignments: Sequence[str]) -> dict[str, str]:
    """Keys and what is assigned to them, as text; of two assignments to one key the last counts."""
    return dict(_divide(assignment) for assignment in assignments)


def apply(tables: Tables, chosen: dict[str, str]) -> dict[str, Any]:
    """The tables with what is `chosen` in them, not checked yet."""
    changed: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in tables.items()}
    _change_method(changed, chosen)
    _change_scheme(changed, chosen)
    kinds = all_kinds(method_named(changed["method"]["name"]))
    for key, text in chosen.items():
        value = parse(text, kinds.get(key))
        section, dot, name = key.partition(".")
        table = changed.setdefault(section, {}) if dot else changed
        if not isinstance(table, dict) or "." in name:
            raise unknown_key(tuple(key.split(".")), list(kinds))
        table[name if dot else key] = value
    return changed


def parse(text: str, kind: Kind | None) -> object:
    """A value as a person types it: TOML, text without quotes, words between commas, or none where that is a value."""
    bare, optional = bare_kind(kind)
    text = text.strip()
    if optional and text.lower() == "none":
        return None
    if bare == Words and not text.startswith("["):
        return tuple(word.strip() for word in text.split(",")) if text else ()
    try:
        read = parse_toml(f"value = {text}")
    except ValueError:
        return text
    value = read["value"] if len(read) == 1 else text
    wants_text = bare is str or get_origin(bare) is Literal
    return text if wants_text and not isinstance(value, str | list | dict) else value


def _divide(assignment: str) -> tuple[str, str]:
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise FedotpError(f"{show(assignment)}: must be key=value, for example method.mass=0.5")
    return key.strip(), text


def _change_method(tables: dict[str, Any], chosen: dict[str, str]) -> None:
    """Another method starts from its own defaults: an option of the same name need not mean the same."""
    name = parse(chosen.get("method.name", tables["method"]["name"]), str)
    if name != tables["method"]["name"]:
        tables["method"] = {"name": method_named(name).name}


def _change_scheme(tables: dict[str, Any], chosen: dict[str, str]) -> None:
    """Another scheme drops what it has no use for; what is chosen beside it stays, to be refused.

    The number of clients goes, too, where it follows from the domains or coarse labels of the data.
    """
    scheme = parse(chosen.get("partition.scheme", tables["partition"]["scheme"]), str)
    if scheme == tables["partition"]["scheme"] or not (scheme in SCHEMES or find_scheme(str(scheme))):
        return
    settings = PartitionSettings(str(scheme))
    useless = set() if settings.draws_sizes else {"alpha", "min_size"}
    if scheme in ("domain", "domain-dirichlet", "site", "coarse") or scheme not in SCHEMES:
        useless.add("n_clients")
    tables["partition"] = {key: value for key, value in tables["partition"].items() if key not in useless}
