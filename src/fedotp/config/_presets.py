"""The presets that come with the package: TOML files whose opening comment says how to run them and what they are."""

from functools import cache
from importlib.resources import files

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
