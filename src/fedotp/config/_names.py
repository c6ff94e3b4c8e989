"""Wrong names of keys and sections, and the right ones near them."""

import difflib
from collections.abc import Sequence

from fedotp._toml import show_key
from fedotp.config._reading import kinds_of
from fedotp.errors import FedotpError, listed
from fedotp.methods import METHODS, Method

_ONE_LETTER = 0.9  # how alike round and rounds are


def unknown_key(key: tuple[str, ...], keys: Sequence[str]) -> FedotpError:
    """The refusal of a key (its parts) that is none of `keys` (dotted)."""
    return FedotpError(f"unknown key {show_key(*key)}; did you mean {_nearest('.'.join(key), keys)}?")


def unknown_section(section: str, sections: Sequence[str]) -> FedotpError:
    """The refusal of a section."""
    near = difflib.get_close_matches(section, sections, n=1, cutoff=0.0)[0]
    return FedotpError(f"unknown section {show_key(section)}; did you mean {near}?")


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


def _nearest(key: str, keys: Sequence[str]) -> str:
    """The key most likely meant: in its section a letter off, part of a name, a slip; the name elsewhere; any slip."""
    section, _, name = key.rpartition(".")
    own = {known.rpartition(".")[2]: known for known in keys if known.rpartition(".")[0] == section}
    if letters := difflib.get_close_matches(name, own, n=1, cutoff=_ONE_LETTER):
        return own[letters[0]]
    if parts := [known for word, known in own.items() if name in word.split("_")]:
        return " or ".join(parts)
    if slips := difflib.get_close_matches(name, own, n=1):
        return own[slips[0]]
    for known in keys:
        if known.rpartition(".")[2] == name:
            return known
    return difflib.get_close_matches(key, keys, n=1, cutoff=0.0)[0]
