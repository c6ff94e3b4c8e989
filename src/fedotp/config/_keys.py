"""Meanings of the keys of a configuration, read from `Attributes:` in the docstrings of the sections' dataclasses.

`fedotp config`, the documentation and the shell's completion use them.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Literal, get_args, get_origin

from fedotp._values import Value, write_value
from fedotp.config._config import Config
from fedotp.config._schema import METHOD, SECTIONS, TOP, Kind, bare_kind, kinds_of, right_for
from fedotp.methods import Method

_ENTRY = re.compile(r"^    (\w+): +(.*(?:\n {8,}.*)*)", re.MULTILINE)  # and its further lines
_SENTENCE = re.compile(r"\.(?:$| (?=[A-Z\"]))")


@dataclass(frozen=True)
class Key:
    """A key of a configuration.

    Attributes:
        name: dotted, such as "optimizer.lr".
        meaning: its description; "" if the docstring has none, as for some user-defined methods.
        right: the valid values, in words.
        choices: the valid values, if they are a few words; else ().
        default: its default value; None for none.
    """

    name: str
    meaning: str
    right: str
    choices: tuple[str, ...]
    default: Value

    @property
    def line(self) -> str:
        """The first sentence of the meaning, with the choices if it does not name them."""
        first = _SENTENCE.split(self.meaning, maxsplit=1)[0]
        return first if all(choice in first for choice in self.choices) else f"{first} ({', '.join(self.choices)})"


def keys_of(method: type[Method]) -> tuple[Key, ...]:
    """Return all keys of a configuration with this method, in the order of the file."""
    meanings, known = meanings_of(Config), {item.name: item for item in fields(Config)}
    top = (_key(name, meanings.get(name, ""), kind, _default(known[name])) for name, kind in TOP.items())
    return (*top, *(key for section in SECTIONS for key in _section(section, method)))


def sections() -> dict[str, str]:
    """Return the sections of a configuration and their meanings."""
    meanings = meanings_of(Config)
    return {section: meanings[section] for section in SECTIONS}


def explained(config: Config) -> str:
    """Return the complete configuration as the text of a TOML file, with a comment above each key."""
    keys = {key.name: key for key in keys_of(type(config.method))}
    resolved = config.resolved.optimizer
    lines: list[str] = []
    for name, value in config.to_dict().items():
        if isinstance(value, dict):
            lines += ["", f"[{name}]  # {_SENTENCE.split(sections()[name])[0]}"]
            for inner, inner_value in value.items():
                lines += _assignment(keys[f"{name}.{inner}"], inner, inner_value)
                if name == "optimizer" and inner_value != (own := getattr(resolved, inner)):
                    lines[-1] += f"  # {write_value(own)} for {config.method.name}"
        else:
            lines += _assignment(keys[name], name, value)
    return "\n".join(lines) + "\n"


def meanings_of(cls: type) -> dict[str, str]:
    """Return the entries under `Attributes:` in the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, attributes = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes:\n")
        for name, text in _ENTRY.findall(re.split(r"\n(?=\S)", attributes, maxsplit=1)[0]):
            found[name] = " ".join(text.split())
    return found


def _assignment(key: Key, name: str, value: Value) -> list[str]:
    comment = [f"# {key.line}"] if key.line else []
    return [*comment, f"# {name} is not set" if value is None else f"{name} = {write_value(value)}"]


def _section(section: str, method: type[Method]) -> Iterator[Key]:
    cls: type[Any] = SECTIONS[section]
    if cls is Method:
        cls = method
        yield Key(f"{section}.name", f"{method.title}: {method.reference}", "a method", (), METHOD)
    kinds, meanings = kinds_of(cls), meanings_of(cls)
    for item in fields(cls):
        yield _key(f"{section}.{item.name}", meanings.get(item.name, ""), kinds[item.name], _default(item))


def _key(name: str, meaning: str, kind: Kind, default: Value) -> Key:
    bare, optional = bare_kind(kind)
    choices = get_args(bare) if get_origin(bare) is Literal else ()
    return Key(name, meaning, right_for(kind) + (", or none" if optional else ""), choices, default)


def _default(item: Field[Any]) -> Value:
    return None if item.default is MISSING else item.default
