"""From tables of anything to dataclasses of the right types, strictly.

A refusal is one line that names the key and says what would be right; `located` adds the place.
"""

import difflib
import math
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

from fedotp._values import Words, alternatives, show, show_key
from fedotp.errors import FedotpError, SettingError

T = TypeVar("T")
Kind = object
"""What a field is annotated with: bool, int, float, str, Words, a Literal of strings; some of these, or None."""

_RIGHT: dict[Kind, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number such as 0.5",
    str: 'text such as "abc"',
    Words: 'a list of texts such as ["abc", "def"]',
}
_RIGHT_VALUE: dict[Kind, str] = {int: "a number of at most 64 bits", float: "a finite number", str: "text in Unicode"}
_KINDS: dict[object, dict[str, Kind]] = {}  # looked up once per class


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put the place in front of the message of a refusal."""
    try:
        yield
    except FedotpError as error:
        raise FedotpError(f"{where}: {error}" if where else str(error)) from None


def kinds_of(cls: type[Any]) -> dict[str, Kind]:
    """The fields of a dataclass and what they are annotated with."""
    if cls not in _KINDS:
        hints = typing.get_type_hints(cls)
        _KINDS[cls] = {item.name: hints[item.name] for item in fields(cls)}
    return _KINDS[cls]


def read_fields(cls: type[T], table: Mapping[str, object], section: str) -> T:
    """Make a `cls` of a table whose keys are known to be fields of it."""
    kinds = kinds_of(cls)
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
    """Refuse a value of the wrong type; whole numbers become floats where these are wanted."""
    bare, optional = bare_kind(kind)
    if value is None and optional:
        return None
    for part in _parts(bare):
        if (found := _converted(value, part)) is not None:
            return found
    raise SettingError(key, show(value), right_for(bare, value))


def _converted(value: object, kind: Kind) -> object:
    """The value as a kind without alternatives; None if it is none."""
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
    """A kind without `| None`, and whether it had it."""
    some = _parts(kind)
    bare = [part for part in some if part is not NoneType]
    return typing.Union[tuple(bare)], len(bare) < len(some)  # noqa: UP007  (alternatives are known only now)


def _parts(kind: Kind) -> tuple[Kind, ...]:
    """The alternatives of a kind."""
    return get_args(kind) if get_origin(kind) in (UnionType, typing.Union) else (kind,)


def right_for(kind: Kind, value: object = None) -> str:
    """What would be right for a kind, in words, considering the wrong `value`."""
    bare, _ = bare_kind(kind)
    if len(some := _parts(bare)) > 1:
        return " or ".join(right_for(part, value) for part in some)
    if get_origin(bare) is Literal:
        return one_of(get_args(bare), value)
    if type(value) is bare:  # the right type, and refused nevertheless
        return _RIGHT_VALUE[bare]
    return _RIGHT[bare] + (", not a list" if isinstance(value, list) and bare != Words else "")


def one_of(choices: Sequence[str], value: object = None) -> str:
    """The choices in words, and the nearest if `value` looks like one of them."""
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
    """Whether TOML has this value: names of files that are not UTF-8 come with lone surrogates."""
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return not isinstance(value, int) or abs(value) < 2**63
