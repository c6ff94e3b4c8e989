"""The sections of a configuration and the keys in them, and what is near a wrong name of either.

The options of [method] depend on its name.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from fedotp._authors import AuthorsSettings
from fedotp._values import show, show_key
from fedotp.config._reading import Kind, convert, kinds_of, one_of, read_fields
from fedotp.config._settings import BackboneSettings, DataSettings
from fedotp.data.partition import PartitionSettings
from fedotp.errors import FedotpError, SettingError, listed, nearest
from fedotp.federation import (
    AttackSettings,
    ComputeSettings,
    EvaluationSettings,
    OptimizerSettings,
    RoundSettings,
    ServerStepSettings,
)
from fedotp.methods import METHODS, FedOTP, Method, PromptSettings, find_method, method_names
from fedotp.privacy import PrivacySettings

SECTIONS: dict[str, type[Any]] = {
    "data": DataSettings,
    "partition": PartitionSettings,
    "backbone": BackboneSettings,
    "prompt": PromptSettings,
    "method": Method,
    "federation": RoundSettings,
    "optimizer": OptimizerSettings,
    "server": ServerStepSettings,
    "attack": AttackSettings,
    "evaluation": EvaluationSettings,
    "compute": ComputeSettings,
    "privacy": PrivacySettings,
    "authors": AuthorsSettings,
}
"""In the order in which they are written. [method] is one of the methods, told apart by its key `name`."""

TOP: dict[str, Kind] = {"seed": int}
"""The keys outside of sections."""

DEFAULTS: dict[str, dict[str, str]] = {"partition": {"scheme": "pathological"}, "method": {"name": FedOTP.name}}
"""What a configuration need not say although the section's own dataclass wants to know it."""

_ONE_LETTER = 0.9  # how alike round and rounds are


def all_kinds(method: type[Method]) -> dict[str, Kind]:
    """Every key of a configuration with this method, dotted, and what it is annotated with."""
    kinds = dict(TOP)
    for section, cls in SECTIONS.items():
        if cls is Method:
            kinds["method.name"] = str
            cls = method
        kinds |= {f"{section}.{key}": kind for key, kind in kinds_of(cls).items()}
    return kinds


def method_named(name: object) -> type[Method]:
    """Look a method up."""
    method = find_method(name) if isinstance(name, str) else None
    if method is None:
        choices = (*method_names(), "one of your own with --import FILE.py")
        raise SettingError("method.name", show(name), one_of(choices, name))
    return method


def read_tables(tables: Mapping[str, object]) -> dict[str, Any]:
    """The values of all keys outside of sections that are given, and an object for every section."""
    given = {section: _as_table(section, tables.get(section, {})) for section in SECTIONS}
    method = method_named((DEFAULTS["method"] | given["method"])["name"])
    kinds = all_kinds(method)
    _refuse_unknown(tables, given, method, list(kinds))
    read: dict[str, Any] = {key: convert(tables[key], kind, key) for key, kind in TOP.items() if key in tables}
    for section, cls in SECTIONS.items():
        table = DEFAULTS.get(section, {}) | given[section]
        if cls is Method:
            cls = method
            table = {key: value for key, value in table.items() if key != "name"}
        read[section] = read_fields(cls, table, section)
    return read


def _as_table(section: str, value: object) -> dict[str, object]:
    if isinstance(value, Mapping):
        return dict(value)
    name = "name" if SECTIONS[section] is Method else next(iter(kinds_of(SECTIONS[section])))
    raise FedotpError(f"{section} = {show(value)}: {section} is a section, not a key; did you mean {section}.{name}?")


def _refuse_unknown(
    tables: Mapping[str, object], given: Mapping[str, Mapping[str, object]], method: type[Method], keys: list[str]
) -> None:
    for key, value in tables.items():
        if key not in SECTIONS and key not in TOP:
            raise unknown_section(key, list(SECTIONS)) if isinstance(value, Mapping) else unknown_key((key,), keys)
    for section, table in given.items():
        for key in table:
            if f"{section}.{key}" not in keys:
                foreign = foreign_option(key, method) if section == "method" else None
                raise foreign or unknown_key((section, key), keys)


def unknown_key(key: tuple[str, ...], keys: Sequence[str]) -> FedotpError:
    """The refusal of a key (its parts) that is none of `keys` (dotted)."""
    whole = ".".join(key)
    if near := _nearest(whole, keys):
        return FedotpError(f"unknown key {show_key(*key)}; did you mean {near}?")
    section = whole.rpartition(".")[0]
    own = _of(section, keys) if section else ()
    right = f"the keys of {section} are {listed(list(own), len(own))}" if own else "`fedotp config` lists all keys"
    return FedotpError(f"unknown key {show_key(*key)}; {right}")


def unknown_section(section: str, sections: Sequence[str]) -> FedotpError:
    """The refusal of a section."""
    near = nearest(section, sections)
    right = f"did you mean {near}?" if near else f"the sections are {listed(sections, len(sections))}"
    return FedotpError(f"unknown section {show_key(section)}; {right}")


def foreign_option(option: str, method: type[Method]) -> FedotpError | None:
    """The refusal of an option that belongs to other methods than this one; None if it belongs to none."""
    owners = [name for name, other in METHODS.items() if option in kinds_of(other)]
    if not owners:
        return None
    own = ", ".join(kinds_of(method)) or "none"
    return FedotpError(
        f"unknown key {show_key('method', option)}: an option of {listed(owners)}; "
        f"the options of {method.name} are: {own}"
    )


def _of(section: str, keys: Sequence[str]) -> dict[str, str]:
    """The keys of a section, by their names within it."""
    return {known.rpartition(".")[2]: known for known in keys if known.rpartition(".")[0] == section}


def _nearest(key: str, keys: Sequence[str]) -> str | None:
    """The key most likely meant: in its section a letter off, part of a name, a slip; the name elsewhere; any slip."""
    section, _, name = key.rpartition(".")
    own = _of(section, keys)
    if letters := difflib.get_close_matches(name, own, n=1, cutoff=_ONE_LETTER):
        return own[letters[0]]
    if parts := [known for word, known in own.items() if name in word.split("_")]:
        return " or ".join(parts)
    if slips := difflib.get_close_matches(name, own, n=1):
        return own[slips[0]]
    for known in keys:
        if known.rpartition(".")[2] == name:
            return known
    if not own:
        return nearest(key, keys)
    near = nearest(name, own)
    return near and own[near]
