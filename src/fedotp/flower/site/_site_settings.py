"""What a site decides for itself.

The command line shows the defaults, so neither torch nor Flower is imported before a method needs it.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from fedotp._values import MOST, require, require_choices
from fedotp.errors import FedotpError
from fedotp.flower._defaults import LEAST_SITES
from fedotp.images import read_window

if TYPE_CHECKING:
    from fedotp.config import Config
    from fedotp.flower.site._source import OwnImages, Part
    from fedotp.flower.site._state import Required

Share = Literal["nothing", "loss", "scores", "predictions"]
Hidden = Literal["example", "group"]
"""A unit that noise at the site can hide."""


@dataclass(frozen=True)
class SiteSettings:
    """What a site decides for itself.

    Attributes:
        name: what the federation calls it.
        state: the folder of its private prompts and its tokens.
        data: its images: a folder, or the name of a data set.
        part: instead of `data`, the number of a client in the configuration's own partition (simulations, trials).
        share: what it sends beyond its update, each including the one before: "nothing", its training
            "loss", "scores" on its own test images, or "predictions" for each of them (without the images' names).
        backbone: where its backbone lies, if not where the configuration says.
        device: where it computes.
        window: how its own greys of more than 8 bits are seen, if not as the configuration says.
        keys: the folder of its keys, with which it signs its part in secure sums; "": it has none.
        require_secure: it takes part only if neither the server nor another site sees its update.
        secure_sites: it takes part in secure sums of at least so many sites.
        require_privacy: it takes part only where all that leaves it, in all runs together, spends no more than this
            epsilon of its images' privacy; 0: it leaves that to the server. With it come
        privacy_unit, privacy_delta, least_noise: what is hidden, the delta, and the least noise multiplier.
    """

    name: str
    state: Path
    data: str = ""
    part: int = -1
    share: Share = "scores"
    backbone: str = ""
    device: str = "auto"
    window: str = ""
    keys: str = ""
    require_secure: bool = False
    secure_sites: int = LEAST_SITES
    require_privacy: float = 0.0
    privacy_unit: Hidden = "example"
    privacy_delta: float = 1e-5
    least_noise: float = 0.5

    def __post_init__(self) -> None:
        require_choices(self)
        require(
            0 <= self.require_privacy <= MOST, "require-privacy", self.require_privacy, "more than 0, for example 8"
        )
        require(0 < self.privacy_delta < 1, "privacy-delta", self.privacy_delta, "in (0, 1), for example 1e-5")
        require(0 < self.least_noise <= MOST, "least-noise", self.least_noise, "more than 0, for example 1")
        require(self.secure_sites >= LEAST_SITES, "secure-sites", self.secure_sites, f"at least {LEAST_SITES}")
        if self.window:
            read_window(self.window)  # or refused
        if bool(self.data) == (self.part >= 0):
            raise FedotpError(f"site {self.name}: give its images, or the number of its part, and not both")

    @property
    def required(self) -> "Required | None":
        """What privacy its owner requires."""
        from fedotp.flower.site._state import Required

        terms = (self.privacy_unit, self.privacy_delta, self.least_noise)
        return Required(self.require_privacy, *terms) if self.require_privacy else None

    @property
    def source(self) -> "OwnImages | Part":
        """Where its images come from."""
        from fedotp.flower.site._source import OwnImages, Part

        return OwnImages(self.data, self.name) if self.data else Part(self.part)

    def shares(self, what: Share) -> bool:
        """Whether the site shares `what`."""
        return get_args(Share).index(self.share) >= get_args(Share).index(what)

    def local(self, config: "Config") -> "Config":
        """The federation's configuration with the site's own folders, device and window."""
        from fedotp.classifier import has_name
        from fedotp.config import BackboneSettings
        from fedotp.flower._agreement import DisagreementError

        if self.data and not self.backbone and not has_name(config.backbone.name):
            raise DisagreementError(
                f"site {self.name}: the federation's backbone {config.backbone.name} is a file; "
                "say with --backbone where it lies here"
            )
        data = replace(config.data, window=self.window or config.data.window_of(self.name))
        own = replace(data, store=str(self.state / "tokens"), root="")
        return replace(
            config,
            data=own if self.data else data,  # parts of one data set share its tokens
            backbone=BackboneSettings(self.backbone) if self.backbone else config.backbone,
            compute=replace(config.compute, device=self.device),
        )
