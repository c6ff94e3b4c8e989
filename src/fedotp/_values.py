"""Values of settings: what they may be, and how TOML writes them.

The standard library reads TOML, without limits, but does not write it. What is out of range is refused in one line,
before anything is allocated or computed.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
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
    """Read TOML that may come from anyone; whatever is wrong with it is a `ValueError`."""
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters; at most {_MOST_CHARACTERS:,} are read")
    if _DEEP.search(text):
        raise ValueError(f"a key has more than {_MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_scalar(value: Scalar) -> str:
    """Write one value; the text is always one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{"".join(_escape(character) for character in value)}"'
    return repr(value)  # of a float: the shortest text that reads back equal


def write_value(value: Scalar | Words) -> str:
    """Write a scalar, or words as a list; the text is always one line."""
    return f"[{', '.join(map(write_scalar, value))}]" if isinstance(value, tuple) else write_scalar(value)


def write_tables(tables: Mapping[str, Value | Mapping[str, Value]]) -> str:
    """Write values first, then tables, both in the given order; None, which TOML does not have, is left out."""
    values = {key: value for key, value in tables.items() if not isinstance(value, Mapping)}
    blocks = [_write_lines(values)] if values else []
    blocks += [f"[{key}]\n{_write_lines(table)}" for key, table in tables.items() if isinstance(table, Mapping)]
    return "\n".join(blocks)


def show(value: object) -> str:
    """A value as a message quotes it: as TOML where that can be, in one line, not too long."""
    try:
        text = write_value(value) if isinstance(value, bool | int | float | str | tuple) else str(value)
    except ValueError:  # a whole number of thousands of digits
        return "a huge number"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def show_key(*parts: str) -> str:
    """A dotted key as a message quotes it."""
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
"""More rounds, clients or images in a batch than a federation has, and a rate or weight that is a slip.

Products of such numbers still fit 64 bits and the floats that prompts are made of.
"""


def require(condition: bool, key: str, value: object, right: str) -> None:
    """Refuse `value`, saying what would be right."""
    if not condition:
        given = repr(value)
        given = given if len(given) <= _LONGEST else f"{given[:_LONGEST]}..."
        raise SettingError(key, given, right)


def require_from(least: float, most: float, key: str, value: float, hint: str = "") -> None:
    """Refuse a number that is not from `least` to `most`; `hint` ends the message."""
    require(least <= value <= most, key, value, f"from {least} to {most}{hint}")


def require_one_of(choices: Any, key: str, value: object) -> None:
    """Refuse what is not among `choices`, a `Literal`."""
    require(value in get_args(choices), key, value, alternatives(get_args(choices)))


def require_choices(settings: object, prefix: str = "") -> None:
    """Refuse settings of which a field that is a `Literal` holds none of its choices; the keys begin with `prefix`."""
    for name, kind in get_type_hints(type(settings)).items():
        if get_origin(kind) is Literal:
            require_one_of(kind, f"{prefix}{name}", getattr(settings, name))


def alternatives(names: Sequence[str]) -> str:
    """Names in words: a, b or c."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
