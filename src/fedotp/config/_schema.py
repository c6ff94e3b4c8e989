"""The sections and keys of a configuration, and their strict conversion from tables to dataclasses.

An error is one line with the key, the valid values and, for an unknown name, the nearest one; `located` adds the
file. The options of [method] depend on its name.
"""

import difflib
import math
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

from fedotp._authors import AuthorsSettings
from fedotp._values import Words, alternatives, show, show_key
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

T = TypeVar("T")
Kind = object
"""The annotation of a field: bool, int, float, str, Words, a Literal of strings, or a union of these and None."""

_RIGHT: dict[Kind, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number such as 0.5",
    str: 'text such as "abc"',
    Words: 'a list of texts such as ["abc", "def"]',
}
_RIGHT_VALUE: dict[Kind, str] = {int: "a number of at most 64 bits", float: "a finite number", str: "text in Unicode"}
_KINDS: dict[object, dict[str, Kind]] = {}  # looked up once per class

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
"""In the order of the file. The key `name` of [method] selects the method."""

TOP: dict[str, Kind] = {"seed": int}
"""The keys outside of sections."""

METHOD = FedOTP.name
"""The default method."""

_ONE_LETTER = 0.9  # similarity of round and rounds


def all_kinds(method: type[Method]) -> dict[str, Kind]:
    """Return the dotted keys of a configuration with this method, and their annotations."""
    kinds = dict(TOP)
    for section, cls in SECTIONS.items():
        if cls is Method:
            kinds["method.name"] = str
            cls = method
        kinds |= {f"{section}.{key}": kind for key, kind in kinds_of(cls).items()}
    return kinds


def method_named(name: object) -> type[Method]:
    """Look up a method."""
    method = find_method(name) if isinstance(name, str) else None
    if method is None:
        choices = (*method_names(), "one of your own with --import FILE.py")
        raise SettingError("method.name", show(name), one_of(choices, name))
    return method


def read_tables(tables: Mapping[str, object]) -> dict[str, Any]:
    """Return the given values of top-level keys, and an object for every section."""
    given = {section: _as_table(section, tables.get(section, {})) for section in SECTIONS}
    method = method_named(given["method"].get("name", METHOD))
    kinds = all_kinds(method)
    _require_known(tables, given, method, list(kinds))
    read: dict[str, Any] = {key: convert(tables[key], kind, key) for key, kind in TOP.items() if key in tables}
    for section, cls in SECTIONS.items():
        table = given[section]
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


def _require_known(
    tables: Mapping[str, object], given: Mapping[str, Mapping[str, object]], method: type[Method], keys: list[str]
) -> None:
    for key, value in tables.items():
        if key not in SECTIONS and key not in TOP:
            if not isinstance(value, Mapping):
                raise unknown_key((key,), keys)
            near = nearest(key, list(SECTIONS))
            right = f"did you mean {near}?" if near else f"the sections are {listed(list(SECTIONS), len(SECTIONS))}"
            raise FedotpError(f"unknown section {show_key(key)}; {right}")
    for section, table in given.items():
        for key in table:
            if f"{section}.{key}" not in keys:
                foreign = foreign_option(key, method) if section == "method" else None
                raise foreign or unknown_key((section, key), keys)


def unknown_key(key: tuple[str, ...], keys: Sequence[str]) -> FedotpError:
    """Return the error for a key (its parts) that is not one of `keys` (dotted)."""
    whole = ".".join(key)
    if near := _nearest(whole, keys):
        return FedotpError(f"unknown key {show_key(*key)}; did you mean {near}?")
    section = whole.rpartition(".")[0]
    own = _of(section, keys) if section else ()
    right = f"the keys of {section} are {listed(list(own), len(own))}" if own else "`fedotp config` lists all keys"
    return FedotpError(f"unknown key {show_key(*key)}; {right}")


def foreign_option(option: str, method: type[Method]) -> FedotpError | None:
    """Return the error for an option of other methods than this one; None if no method has it."""
    owners = [name for name, other in METHODS.items() if option in kinds_of(other)]
    if not owners:
        return None
    own = ", ".join(kinds_of(method)) or "none"
    return FedotpError(
        f"unknown key {show_key('method', option)}: an option of {listed(owners)}; "
        f"the options of {method.name} are: {own}"
    )


def _of(section: str, keys: Sequence[str]) -> dict[str, str]:
    """Return the keys of a section, by their names in it."""
    return {known.rpartition(".")[2]: known for known in keys if known.rpartition(".")[0] == section}


def _nearest(key: str, keys: Sequence[str]) -> str | None:
    """Return the most similar key: by typos or parts of names in its section, then by its name in other sections."""
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


# Values ---------------------------------------------------------------------------------------------------


@contextmanager
def located(where: str) -> Iterator[None]:
    """Prefix error messages with the place."""
    try:
        yield
    except FedotpError as error:
        raise FedotpError(f"{where}: {error}" if where else str(error)) from None


def kinds_of(cls: type[Any]) -> dict[str, Kind]:
    """Return the fields of a dataclass and their annotations."""
    if cls not in _KINDS:
        hints = typing.get_type_hints(cls)
        _KINDS[cls] = {item.name: hints[item.name] for item in fields(cls)}
    return _KINDS[cls]


def read_fields(cls: type[T], table: Mapping[str, object], section: str) -> T:
    """Make a `cls` from a table, all keys of which must be fields of it."""
    kinds = kinds_of(cls)
    if unknown := next((key for key in table if key not in kinds), None):
        raise unknown_key((section, unknown), [f"{section}.{name}" for name in kinds])
    values = {key: convert(value, kinds[key], show_key(section, key)) for key, value in table.items()}
    for item in fields(cls):  # type: ignore[arg-type]  # T is a dataclass
        if item.name not in values and item.default is MISSING and item.default_factory is MISSING:
            right = item.metadata.get("right") or right_for(kinds[item.name])
            raise FedotpError(f"missing key {section}.{item.name}: must be {right}")
    try:
        return cls(**values)
    except SettingError as error:
        raise error.under(section) from None
    except FedotpError as error:
        raise FedotpError(str(error) if str(error).startswith(f"{section}.") else f"{section}: {error}") from None


def convert(value: object, kind: Kind, key: str) -> object:
    """Check the type of a value; convert integers to float where needed."""
    bare, optional = bare_kind(kind)
    if value is None and optional:
        return None
    for part in _parts(bare):
        if (found := _converted(value, part)) is not None:
            return found
    raise SettingError(key, show(value), right_for(bare, value))


def _converted(value: object, kind: Kind) -> object:
    """Return the value as a kind without alternatives; None if it is of another."""
    if get_origin(kind) is Literal:
        return value if isinstance(value, str) and value in get_args(kind) else None
    if kind is float:
        return _finite(value)
    if kind == Words:
        words = tuple(value) if isinstance(value, list | tuple) else (None,)
        return words if all(type(word) is str and _is_writable(word) for word in words) else None
    # the exact type: to isinstance a bool is an int
    return value if type(value) is kind and _is_writable(value) else None


def bare_kind(kind: Kind) -> tuple[Kind, bool]:
    """Return a kind without `| None`, and True if it had it."""
    some = _parts(kind)
    bare = [part for part in some if part is not NoneType]
    return typing.Union[tuple(bare)], len(bare) < len(some)  # noqa: UP007  (alternatives are known only now)


def _parts(kind: Kind) -> tuple[Kind, ...]:
    return get_args(kind) if get_origin(kind) in (UnionType, typing.Union) else (kind,)


def right_for(kind: Kind, value: object = None) -> str:
    """Describe the valid values of a kind, given the invalid `value`."""
    bare, _ = bare_kind(kind)
    if len(some := _parts(bare)) > 1:
        return " or ".join(right_for(part, value) for part in some)
    if get_origin(bare) is Literal:
        return one_of(get_args(bare), value)
    if type(value) is bare:  # the right type, but an invalid value
        return _RIGHT_VALUE[bare]
    return _RIGHT[bare] + (", not a list" if isinstance(value, list) and bare != Words else "")


def one_of(choices: Sequence[str], value: object = None) -> str:
    """Return the choices in words, with the nearest if `value` is similar to one."""
    listed = alternatives(choices)
    near = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    return f"{listed}; did you mean {near[0]}?" if near else listed


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _is_writable(value: object) -> bool:
    """True if TOML can represent this value: file names that are not UTF-8 contain lone surrogates."""
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return not isinstance(value, int) or abs(value) < 2**63
