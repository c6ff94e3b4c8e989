"""Checks of settings, and TOML, which the standard library reads without limits and cannot write."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedotp.errors import SettingError

Scalar = bool | int | float | str
Words = tuple[str, ...]
Value = Scalar | Words | None
Tables = dict[str, Value | dict[str, Value]]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_LONGEST = 80  # characters of a value in a message
_MOST_CHARACTERS = 1 << 20  # of a file
_MOST_PARTS = 16  # of a dotted key; the time tomllib takes grows with more than their square
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_DEEP = re.compile(rf"(?:^|[\[{{,])[ \t]*+(?:{_PART}\.[ \t]*+){{{_MOST_PARTS}}}", re.MULTILINE)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML from an untrusted source; any error is a `ValueError`."""
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters: must be at most {_MOST_CHARACTERS:,}")
    if _DEEP.search(text):
        raise ValueError(f"a dotted key has more than {_MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def packaged(*path: str) -> dict[str, Any]:
    """Read a TOML file of facts of this package."""
    return tomllib.loads(files("fedotp").joinpath(*path).read_text(encoding="utf-8"))


def write_scalar(value: Scalar) -> str:
    """Serialise one value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{"".join(_escape(character) for character in value)}"'
    return repr(value)  # for a float: the shortest text that parses to the same value


def write_value(value: Scalar | Words) -> str:
    """Serialise a scalar, or a tuple of strings as a list, on one line."""
    return f"[{', '.join(map(write_scalar, value))}]" if isinstance(value, tuple) else write_scalar(value)


def write_tables(tables: Mapping[str, Value | Mapping[str, Value]]) -> str:
    """Serialise values, then tables, both in the given order; None, which TOML does not have, is skipped."""
    values = {key: value for key, value in tables.items() if not isinstance(value, Mapping)}
    blocks = [_write_lines(values)] if values else []
    blocks += [f"[{key}]\n{_write_lines(table)}" for key, table in tables.items() if isinstance(table, Mapping)]
    return "\n".join(blocks)


def show(value: object) -> str:
    """Format a value for a message: as TOML if possible, on one line, truncated."""
    try:
        text = write_value(value) if isinstance(value, bool | int | float | str | tuple) else str(value)
    except ValueError:  # an integer of thousands of digits
        return "a huge number"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def show_key(*parts: str) -> str:
    """Format a dotted key for a message."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else show(part) for part in parts)


def _write_lines(table: Mapping[str, Value]) -> str:
    return "".join(f"{key} = {write_value(value)}\n" for key, value in table.items() if value is not None)


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


MOST = 10**6
"""Upper limit of numbers of rounds, clients and images in a batch, and of rates and weights; products fit 64 bits."""


def require(condition: bool, key: str, value: object, right: str) -> None:
    """Raise `SettingError` ("key = value: must be right") unless `condition`."""
    if not condition:
        given = repr(value)
        given = given if len(given) <= _LONGEST else f"{given[:_LONGEST]}..."
        raise SettingError(key, given, right)


def require_from(least: float, most: float, key: str, value: float, hint: str = "") -> None:
    """Require a number from `least` to `most`; `hint` is appended to the message."""
    require(least <= value <= most, key, value, f"from {least} to {most}{hint}")


def require_one_of(choices: Any, key: str, value: object) -> None:
    """Require one of the values of the `Literal` `choices`."""
    require(value in get_args(choices), key, value, alternatives(get_args(choices)))


def require_choices(settings: object, prefix: str = "") -> None:
    """Require a valid choice in every `Literal` field of `settings`; messages name keys with this `prefix`."""
    for name, kind in get_type_hints(type(settings)).items():
        if get_origin(kind) is Literal:
            require_one_of(kind, f"{prefix}{name}", getattr(settings, name))


def alternatives(names: Sequence[str]) -> str:
    """Join names as "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
