"""The one exception type that means "the input is wrong", as opposed to a bug in fedotp."""

from collections.abc import Sequence


class FedotpError(Exception):
    """Bad input. The message is one line: what is wrong, where, and what would be right.

    The command line prints it without a traceback and exits with status 2.
    """


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, not too many of them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
