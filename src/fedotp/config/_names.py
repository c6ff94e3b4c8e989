"""Wrong names of keys and sections, and the right ones near them."""

import difflib
from collections.abc import Sequence

from fedotp._toml import show_key
from fedotp.config._reading import kinds_of
from fedotp.errors import FedotpError, listed, nearest
from fedotp.methods import METHODS, Method

_ONE_LETTER = 0.9  # how alike round and rounds are


def unknown_key(key: tuple[str, ...], keys: Sequence[str]) -> FedotpError:
    """The refusal of a key (its parts) that is none of `keys` (dotted)."""
    whole = ".".join(key)
    if near := _nearest(whole, keys):
        return FedotpError(f"unknown key {show_key(*key)}; did you mean {near}?")
    section = whole.rpartition(".")[0]
    own = _of(section, keys) if section else ()
    right = f"the keys of {section} are {listed(list(own), len(own))}" if own else "`fedotp config` lists all keys"
    return FedotpError(f"unknown key {show_key(*key)}; {right}")


def unknown_section(section: str, sections: Sequence[str]) -> FedotpError:
    """The refusal of a section."""
    near = nearest(section, sections)
    right = f"did you mean {near}?" if near else f"the sections are {listed(sections, len(sections))}"
    return FedotpError(f"unknown section {show_key(section)}; {right}")


def foreign_option(option: str, method: type[Method]) -> FedotpError | None:
    """The refusal of an option that belongs to other methods than this one; None if it belongs to none."""
    owners = [name for name, other in METHODS.items() if option in kinds_of(other)]
    if not owners:
        return None
    own = ", ".join(kinds_of(method)) or "none"
    return FedotpError(
        f"unknown key {show_key('method', option)}: an option of {listed(owners)}; "
        f"the options of {method.name} are: {own}"
    )


def _of(section: str, keys: Sequence[str]) -> dict[str, str]:
    """The keys of a section, by their names within it."""
    return {known.rpartition(".")[2]: known for known in keys if known.rpartition(".")[0] == section}


def _nearest(key: str, keys: Sequence[str]) -> str | None:
    """The key most likely meant: in its section a letter off, part of a name, a slip; the name elsewhere; any slip."""
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
