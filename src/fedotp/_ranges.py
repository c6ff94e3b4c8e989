"""What a setting may be: everything beyond is refused in one line, before anything is allocated or computed."""

from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fedotp.errors import SettingError

_LONGEST = 80  # characters of a value in a message

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
