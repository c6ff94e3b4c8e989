"""Words from elsewhere (names of files and classes, a site's or a server's messages) as they may be shown."""

_LINE = 400


def printable(text: object) -> str:
    """Text that cannot harm a terminal: control, escape and bidirectional characters are written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def one_line(words: object, longest: int = _LINE) -> str:
    """A stranger's words as they may stand in a log: one line of a decent length, no control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(words)[: 4 * longest]).split())
    return line if len(line) <= longest else f"{line[:longest]} ..."


def counted(n: int, what: str, several: str = "") -> str:
    """A number of things in words: "1 image", "2,000 images"; `several` where an s is not all."""
    return f"{n:,} {what if n == 1 else several or f'{what}s'}"


def percent(share: float) -> str:
    """A share, in percent."""
    return f"{100 * share:.2f}"
