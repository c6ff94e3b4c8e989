"""What is known without waiting for torch: the presets that come with the package, and the names of methods and keys.

A preset is a TOML file whose opening comment says how to run it and what it is. Methods and keys are in `words.json`,
which the schema has written: `make reference` writes it again, and a test says when that is due.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fedotp.errors import FedotpError, nearest

_FIRST = "demo"


@cache
def preset_texts() -> dict[str, str]:
    """The text of every preset, the demonstrations first."""
    found = {
        item.name.removesuffix(".toml"): item.read_text(encoding="utf-8")
        for item in files("fedotp").joinpath("presets").iterdir()
        if item.name.endswith(".toml")
    }
    return {name: found[name] for name in sorted(found, key=lambda name: (not name.startswith(_FIRST), name))}


def presets() -> dict[str, str]:
    """Every preset by name, with the line of its opening comment that says what it is."""
    return {name: _summary(text) for name, text in preset_texts().items()}


def preset_text(name: str) -> str:
    """The text of a preset."""
    texts = preset_texts()
    if name not in texts:
        meant = f"; did you mean {near!r}?" if (near := nearest(name, texts)) else ""
        raise FedotpError(f"unknown preset {name!r}{meant} ({', '.join(texts)}; or a file whose name ends in .toml)")
    return texts[name]


def _summary(text: str) -> str:
    """The first line of the comment behind the command."""
    comment = (line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    return next((line for line in comment if line and not line.startswith("fedotp ")), "")


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
