"""Findings of the checks before a start: an item, its state, and what to do if it is not ok."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from fedotp._text import one_line
from fedotp.errors import FedotpError

Finding = tuple[str, str, str]  # item; "ok", "warning", "failed" or "not checked"; remark
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Asked:
    """The answer of a server to a check: why it refuses this site, if so, its version, its agreement (JSON), its clock.

    `ahead` is how many seconds this site's clock is ahead of the server's, which accepts `earliest` to `latest`.
    `peers` is the digest of the accepted keys.
    """

    refused: str
    version: str
    agreement: str
    ahead: float | None
    earliest: float
    latest: float
    peers: str


class CautionError(FedotpError):
    """Raised by a check for something that does not prevent a start."""


class UncheckedError(FedotpError):
    """Raised by a check that cannot be made."""


def examine(checks: Iterable[tuple[str, Callable[[], str]]]) -> Iterator[Finding]:
    """Make checks in order; each returns what is right, or raises what is wrong."""
    states: dict[type[Exception], str] = {CautionError: "warning", UncheckedError: "not checked"}
    for item, check in checks:
        try:
            yield item, "ok", check()
        except (FedotpError, OSError) as error:
            yield item, states.get(type(error), "failed"), one_line(error).removeprefix(f"{item}: ")


def needed(value: _Value | None, why: str) -> _Value:
    """Return a value that a check needs, or raise why there is none."""
    if value is None:
        raise UncheckedError(why)
    return value
