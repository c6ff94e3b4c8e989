"""Settings of the server of a real federation, beyond the configuration of the run."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from fedotp._values import MOST, require


@dataclass(frozen=True)
class ServerSettings:
    """Settings of the server.

    Attributes:
        min_sites: number of sites to wait for before the first round; 0 for all that are named.
        start_timeout: stop waiting for them after this many seconds; 0 for no limit.
        round_timeout: seconds a site has for its answer; later answers are ignored.
        patience: seconds to wait for a site that has disconnected, before and during a round and within
            `round_timeout`, so that a short network failure does not exclude a site from the round.
        max_times: limit of a site's images, and of the norm of its update, as a multiple of the median of all sites
            (`_updates.py`).
        max_images: limit of a site's images; 0: `max_times`, and at most as many as all other sites together.
        allow_new_counts: increase the weight of a site that reconnects with more images than it reported first; if
            false, the first number counts.
        secure: use secure sums, so that the server sees only the sum of the updates (`fedotp.flower.secure`).
        secure_threshold: opening a sum requires more than this share of its sites.
        secure_range: largest absolute value of a prompt in a secure sum.
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
        require(self.max_images >= 0, "max-images", self.max_images, "at least 0 (0: limited by max-times)")
        require(0.5 <= self.secure_threshold < 1, "secure-threshold", self.secure_threshold, "from 0.5 to less than 1")
        require(1 <= self.secure_range <= MOST, "secure-range", self.secure_range, f"from 1 to {MOST}, for example 64")

    @property
    def wait(self) -> float:
        """Seconds to wait for a site that has disconnected."""
        return min(self.patience, self.round_timeout)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> "ServerSettings":
        """Read Flower's run configuration, whose keys have dashes; ignore other keys."""
        from fedotp.config import read_fields  # the command line imports this module

        names = [item.name for item in fields(cls) if item.name.replace("_", "-") in given]
        return read_fields(cls, {name: given[name.replace("_", "-")] for name in names}, "app")
