"""What the server of a real federation decides, beyond the configuration of the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from fedotp._values import MOST, require
from fedotp.errors import FedotpError


@dataclass(frozen=True)
class ServerSettings:
    """How the server treats its sites.

    Attributes:
        min_sites: wait for so many before the first round; 0 for all that are named.
        start_timeout: give up waiting for them after so many seconds; 0: never.
        round_timeout: seconds a site has for its answer; what comes later does not count.
        patience: seconds for which the server waits for a site that has disconnected, before a round and during it,
            within `round_timeout`. So a short failure of the link does not exclude a site from the round.
        max_times: no site counts with more images, and no update moves the prompt further, than so many times the
            median of all sites (`_updates.py`).
        max_images: no site counts with more images than so many; 0: as `max_times` says, and no more than all others.
        allow_new_counts: a site that comes back with more images than it announced first weighs more from then on;
            otherwise what was announced first is what counts.
        secure: add updates up so that the server sees nothing but their sum (`fedotp.flower.secure`).
        secure_threshold: such a sum is opened by more than this share of its sites.
        secure_range: no value of a prompt may be larger than this in a secure sum.
    """

    min_sites: int = 0
    start_timeout: float = 0.0
    round_timeout: float = 3600.0
    patience: float = 180.0
    max_times: float = 10.0
    max_images: int = 0
    allow_new_counts: bool = False
    secure: bool = False
    secure_threshold: float = 2 / 3
    secure_range: int = 64

    def __post_init__(self) -> None:
        require(self.min_sites >= 0, "min-sites", self.min_sites, "at least 0 (0: all that are named)")
        require(self.start_timeout >= 0, "start-timeout", self.start_timeout, "at least 0 seconds (0: no limit)")
        require(self.round_timeout > 0, "round-timeout", self.round_timeout, "more than 0 seconds, for example 3600")
        require(self.patience >= 0, "patience", self.patience, "at least 0 seconds, for example 180")
        require(1 <= self.max_times < 1e9, "max-times", self.max_times, "at least 1, for example 10")
        require(self.max_images >= 0, "max-images", self.max_images, "at least 0 (0: as max-times says)")
        require(0.5 <= self.secure_threshold < 1, "secure-threshold", self.secure_threshold, "from 0.5 to less than 1")
        require(1 <= self.secure_range <= MOST, "secure-range", self.secure_range, f"from 1 to {MOST}, for example 64")

    @property
    def wait(self) -> float:
        """Seconds for which the server waits for a site that has disconnected."""
        return min(self.patience, self.round_timeout)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> "ServerSettings":
        """From Flower's run configuration, whose keys have dashes; other keys are ignored."""
        kinds: dict[Any, Callable[[Any], Any]] = {int: int, float: float, bool: _flag}
        hints = {name: kind for name, kind in get_type_hints(cls).items() if kind in kinds}
        values = {name: given[key] for name in hints if (key := name.replace("_", "-")) in given}
        try:
            typed = {name: kinds[hints[name]](value) for name, value in values.items()}
        except (TypeError, ValueError) as error:
            raise FedotpError(f"the run configuration has a value of the wrong type: {error}") from None
        return cls(**typed)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value
