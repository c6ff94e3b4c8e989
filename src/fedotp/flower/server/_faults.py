"""Why no update could be taken from a site that was asked for one."""

from dataclasses import dataclass

from fedotp._text import one_line
from fedotp.errors import FedotpError

_REFUSED = "its update is refused:"


class UpdateRefusedError(FedotpError):
    """There is an update in a site's answer, and it is not in order."""


@dataclass(frozen=True)
class Fault:
    """One round in which no update was taken from a site, and why; `refused`: because of what was in the update."""

    why: str
    refused: bool = False

    @classmethod
    def of(cls, error: FedotpError) -> "Fault":
        """What was wrong with an answer."""
        return cls(str(error), refused=isinstance(error, UpdateRefusedError))

    @classmethod
    def read(cls, line: str) -> "Fault":
        """Of the line that a run's metrics have kept."""
        return cls(line.removeprefix(_REFUSED).strip(), refused=line.startswith(_REFUSED))

    def __str__(self) -> str:
        """The line for log and metrics."""
        return one_line(f"{_REFUSED} {self.why}" if self.refused else self.why)
