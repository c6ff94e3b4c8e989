"""Findings of the checks before a start: an item, its state, and what to do if it is not ok."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from fedotp._text import one_line
from fedotp.errors import FedotpError

State = Literal["ok", "warning", "failed", "not checked"]
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    item: str
    state: State
    text: str


class CautionError(FedotpError):
    """Raised by a check for something that does not prevent a start."""


class UncheckedError(FedotpError):
    """Raised by a check that cannot be made."""


def examine(checks: Iterable[tuple[str, Callable[[], str]]]) -> Iterator[Finding]:
    """Make checks in order; each returns what is right, or raises what is wrong."""
    states: dict[type[Exception], State] = {CautionError: "warning", UncheckedError: "not checked"}
    for item, check in checks:
        try:
            yield Finding(item, "ok", check())
        except (FedotpError, OSError) as error:
            yield Finding(item, states.get(type(error), "failed"), one_line(error))


def needed(value: _Value | None, why: str) -> _Value:
    """Return a value that a check needs, or raise why there is none."""
    if value is None:
        raise UncheckedError(why)
    return value
