"""Formatting of text for display, in particular untrusted text: file and class names, messages of sites and servers."""

_LINE = 400
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def printable(text: object) -> str:
    """Escape control and bidirectional characters, which could manipulate a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def one_line(words: object, longest: int = _LINE) -> str:
    """Shorten untrusted text to one line without control characters, for logs and messages."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(words)[: 4 * longest]).split())
    return line if len(line) <= longest else f"{line[:longest]} ..."


def counted(n: int, what: str, several: str = "") -> str:
    """Format a count with its noun: "1 image", "2,000 images"; `several` is an irregular plural."""
    return f"{n:,} {what if n == 1 else several or f'{what}s'}"


def percent(share: float) -> str:
    """Format a share as a percentage without the sign."""
    return f"{100 * share:.2f}"


def n_bytes(value: float) -> str:
    """Format a number of bytes."""
    power = 0
    while value >= 1024 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.0f} B" if power == 0 else f"{value:.1f} {_UNITS[power]}"
