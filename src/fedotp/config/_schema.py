"""The sections of a configuration and the keys in them; the options of [method] depend on its name."""

from collections.abc import Mapping
from typing import Any

from fedotp._toml import show
from fedotp.config._names import foreign_option, unknown_key, unknown_section
from fedotp.config._reading import Kind, convert, kinds_of, one_of, read_fields
from fedotp.config._settings import BackboneSettings, DataSettings
from fedotp.data import PartitionSettings
from fedotp.errors import FedotpError, SettingError
from fedotp.federation import (
    AttackSettings,
    ComputeSettings,
    EvaluationSettings,
    OptimizerSettings,
    RoundSettings,
    ServerStepSettings,
)
from fedotp.methods import FedOTP, Method, PromptSettings, find_method, method_names
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
}
"""In the order in which they are written. [method] is one of the methods, told apart by its key `name`."""

TOP: dict[str, Kind] = {"seed": int}
"""The keys outside of sections."""

DEFAULTS: dict[str, dict[str, str]] = {"partition": {"scheme": "pathological"}, "method": {"name": FedOTP.name}}
"""What a configuration need not say although the section's own dataclass wants to know it."""


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
