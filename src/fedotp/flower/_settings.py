"""What the server of a real federation decides, beyond the configuration of the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_type_hints

from fedotp.errors import FedotpError
from fedotp.federation._settings import require

Privacy = Literal["none", "server", "client", "adaptive"]


@dataclass(frozen=True)
class ServerSettings:
    """How the server deals with its sites.

    Attributes:
        min_sites: wait for so many before the first round; 0 for all that are named.
        start_timeout: give up waiting for them after so many seconds; 0: never.
        round_timeout: seconds a site has for its answer; what comes later does not count.
        patience: seconds for which a site that has gone away is awaited, before a round begins and in the middle of
            it, as long as `round_timeout` allows: a link that breaks for a moment, or a server that slept, costs no
            site its round.
        max_update: an update is refused if it moves the prompt by more than so many times its length (or by more
            than so much, for a prompt shorter than 1).
        privacy: which of Flower's differential-privacy wrappers stands around the average: "server" clips the sites'
            updates at the server, "client" at the site, "adaptive" at the server with a norm that follows the updates.
            All add Gaussian noise to the average and weigh all sites alike.
        noise: noise multiplier.
        clip: clipping norm of an update (for "adaptive": the first one).
        delta: account for the privacy spent, at this delta; 0: do not ("server" and "client" only).
        max_epsilon: end the run before the privacy spent exceeds this; 0: no limit.
    """

    min_sites: int = 0
    start_timeout: float = 0.0
    round_timeout: float = 3600.0
    patience: float = 180.0
    max_update: float = 100.0
    privacy: Privacy = "none"
    noise: float = 1.0
    clip: float = 0.1
    delta: float = 0.0
    max_epsilon: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values that no federation could make right."""
        require(self.min_sites >= 0, "min-sites", self.min_sites, "at least 0 (0: all that are named)")
        require(self.start_timeout >= 0, "start-timeout", self.start_timeout, "at least 0 seconds (0: no limit)")
        require(self.round_timeout > 0, "round-timeout", self.round_timeout, "more than 0 seconds, for example 3600")
        require(self.patience >= 0, "patience", self.patience, "at least 0 seconds, for example 180")
        require(self.max_update > 0, "max-update", self.max_update, "more than 0, for example 100")
        known = ("none", "server", "client", "adaptive")
        require(self.privacy in known, "privacy", self.privacy, "none, server, client or adaptive")
        require(self.noise >= 0, "noise", self.noise, "at least 0, for example 1")
        require(self.clip > 0, "clip", self.clip, "more than 0, for example 0.1")
        require(0 <= self.delta < 1, "delta", self.delta, "in [0, 1), for example 1e-5")
        require(self.max_epsilon >= 0, "max-epsilon", self.max_epsilon, "at least 0 (0: no limit)")
        if self.delta and (self.privacy not in ("server", "client") or not self.noise):
            raise FedotpError(f"delta = {self.delta}: privacy is accounted for with privacy server or client and noise")
        if self.max_epsilon and not self.delta:
            raise FedotpError(f"max-epsilon = {self.max_epsilon}: needs delta, for example 1e-5")

    @property
    def wait(self) -> float:
        """Seconds for which a site that has gone away is awaited."""
        return min(self.patience, self.round_timeout)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> "ServerSettings":
        """From Flower's run configuration, whose keys have dashes; keys that are for others are left alone."""
        values = {item.name: given[name] for item in fields(cls) if (name := item.name.replace("_", "-")) in given}
        kinds: dict[Any, Callable[[Any], Any]] = {int: int, float: float, Privacy: str}
        hints = get_type_hints(cls)
        try:
            typed = {name: kinds[hints[name]](value) for name, value in values.items()}
        except (TypeError, ValueError) as error:
            raise FedotpError(f"the run configuration has a value of the wrong type: {error}") from None
        return cls(**typed)
