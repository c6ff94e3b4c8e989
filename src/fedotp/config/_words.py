"""The names of methods and keys, for whoever must not wait for torch: `words.json`, which the schema has written.

`make reference` writes it again; a test says when that is due.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Word:
    """A key: its meaning in one line, and its values where they are a few words."""

    line: str
    choices: tuple[str, ...]


def known_methods() -> dict[str, str]:
    """The names of fedotp's own methods, and their titles."""
    return {name: method["title"] for name, method in _read()["methods"].items()}


def known_keys(method: str | None = None) -> dict[str, Word]:
    """The keys of a configuration, dotted: with one of fedotp's own methods, or with any."""
    words = _read()
    names = words["methods"] if method is None else [method]
    options = {f"method.{key}": word for name in names for key, word in words["methods"][name]["options"].items()}
    return {key: Word(word["line"], tuple(word["choices"])) for key, word in (words["keys"] | options).items()}


@cache
def _read() -> dict[str, Any]:
    return dict(json.loads(files("fedotp.config").joinpath("words.json").read_text(encoding="utf-8")))
