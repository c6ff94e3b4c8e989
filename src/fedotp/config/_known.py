"""Presets, and names of methods and keys, without importing torch.

A preset is a TOML file that opens with a comment: its command and a description. Methods and keys are in `words.json`,
which `make reference` generates from the schema; a test fails if it is out of date.
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
    """Return the texts of all presets, demonstrations first."""
    found = {
        item.name.removesuffix(".toml"): item.read_text(encoding="utf-8")
        for item in files("fedotp").joinpath("presets").iterdir()
        if item.name.endswith(".toml")
    }
    return {name: found[name] for name in sorted(found, key=lambda name: (not name.startswith(_FIRST), name))}


def presets() -> dict[str, str]:
    """Return the names of all presets with their descriptions, from their opening comments."""
    return {name: _summary(text) for name, text in preset_texts().items()}


def preset_text(name: str) -> str:
    """Return the text of a preset."""
    texts = preset_texts()
    if name not in texts:
        meant = f"; did you mean {near!r}?" if (near := nearest(name, texts)) else ""
        raise FedotpError(f"unknown preset {name!r}{meant} ({', '.join(texts)}; or a *.toml file)")
    return texts[name]


def _summary(text: str) -> str:
    """Return the first line of the comment after the command."""
    comment = (line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    return next((line for line in comment if line and not line.startswith("fedotp ")), "")


@dataclass(frozen=True)
class Word:
    """A key: its meaning in one line, and its valid values if they are a few words."""

    line: str
    choices: tuple[str, ...]


def known_methods() -> dict[str, str]:
    """Return the names and titles of the built-in methods."""
    return {name: method["title"] for name, method in _read()["methods"].items()}


def known_keys() -> dict[str, Word]:
    """Return the dotted keys of a configuration with any built-in method."""
    words = _read()
    options = {f"method.{key}": word for of in words["methods"].values() for key, word in of["options"].items()}
    return {key: Word(word["line"], tuple(word["choices"])) for key, word in (words["keys"] | options).items()}


@cache
def _read() -> dict[str, Any]:
    return dict(json.loads(files("fedotp.config").joinpath("words.json").read_text(encoding="utf-8")))
