"""The exceptions that a person can mend, as opposed to a bug in fedotp."""

import difflib
from collections.abc import Iterable, Sequence

_NEAR = 0.5  # how alike modle and method are, about


class FedotpError(Exception):
    """Bad input. The message is one line: what is wrong, where, and what would be right.

    The command line prints it without a traceback and exits with status 2.
    """


class SettingError(FedotpError):
    """A setting that cannot be: its key, what was given, and what would be right, in words."""

    def __init__(self, key: str, given: str, right: str) -> None:
        super().__init__(f"{key} = {given}: must be {right}")
        self.key = key
        self.given = given
        self.right = right

    def under(self, section: str) -> "SettingError":
        """The same of a section's key; a key that names its section already stays as it is."""
        whole = self.key if self.key.startswith(f"{section}.") else f"{section}.{self.key}"
        return SettingError(whole, self.given, self.right)


class MissingPackageError(FedotpError):
    """An image needs a package that is not installed. The image is not broken, and must not be left out as such."""


class TransientError(FedotpError):
    """Nothing is wrong with the input, and the same command may succeed later: no descriptors left, a link that broke.

    The command line exits with status 75 (`EX_TEMPFAIL`), after which a service manager starts it again.
    """


def listed(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, not too many of them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that may have been meant; None if `name` is like none of them."""
    return next(iter(difflib.get_close_matches(name, list(names), n=1, cutoff=_NEAR)), None)
