"""Exceptions that the user can resolve, as opposed to bugs in fedotp."""

import difflib
from collections.abc import Iterable, Sequence

_NEAR = 0.5  # about the similarity of "modle" and "method"


class FedotpError(Exception):
    """Invalid input. The message is one line: what is wrong, where, and what to do.

    The command line prints it without a traceback and exits with status 2.
    """


class SettingError(FedotpError):
    """An invalid setting: its key, the given value, and a description of valid values."""

    def __init__(self, key: str, given: str, right: str) -> None:
        super().__init__(f"{key} = {given}: must be {right}")
        self.key = key
        self.given = given
        self.right = right

    def under(self, section: str) -> "SettingError":
        """Return the error with the section prepended to its key, unless the key already contains it."""
        whole = self.key if self.key.startswith(f"{section}.") else f"{section}.{self.key}"
        return SettingError(whole, self.given, self.right)


class MissingPackageError(FedotpError):
    """An image needs a package that is not installed. The image is not broken and must not be skipped."""


class TransientError(FedotpError):
    """A temporary failure, such as a full disk or a broken connection: the same command may succeed later.

    The command line exits with status 75 (`EX_TEMPFAIL`), on which a service manager restarts it.
    """


def listed(names: Sequence[str], most: int = 12) -> str:
    """Join names for a message, with the number of those omitted."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of `names` as a suggestion; None if none is similar."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=_NEAR)), None)
