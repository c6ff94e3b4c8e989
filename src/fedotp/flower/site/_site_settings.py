"""Settings of a site.

The command line shows the defaults, so methods import torch and Flower on use.
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
"""A unit that noise at the site can protect."""


@dataclass(frozen=True)
class SiteSettings:
    """Settings of a site.

    Attributes:
        name: its name in the federation.
        state: the folder of its private prompts and its tokens.
        data: its images: a folder, or the name of a data set.
        part: instead of `data`, the number of a client in the configuration's own partition (simulations, trials).
        share: results it sends in addition to its update, each including the previous: "nothing", its training
            "loss", "scores" on its own test images, or "predictions" for each of them (without the images' names).
        backbone: path of its backbone, if it differs from the configuration.
        device: the compute device.
        window: window of its images with more than 8 bits, if it differs from the configuration.
        keys: the folder of its keys, for signatures in secure sums; "": no keys.
        require_secure: refuse to participate if the server or another site could see its update.
        secure_sites: minimum number of sites in a secure sum.
        require_privacy: maximum epsilon of its images' privacy, over all runs together; 0: the server decides.
        privacy_unit, privacy_delta, least_noise: with `require_privacy`, the protected unit, the delta and the
            smallest noise multiplier.
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
            read_window(self.window)  # raises if invalid
        if bool(self.data) == (self.part >= 0):
            raise FedotpError(f"site {self.name}: specify either its images or the number of its part")

    @property
    def required(self) -> "Required | None":
        """The privacy that the site's owner requires."""
        from fedotp.flower.site._state import Required

        terms = (self.privacy_unit, self.privacy_delta, self.least_noise)
        return Required(self.require_privacy, *terms) if self.require_privacy else None

    @property
    def source(self) -> "OwnImages | Part":
        """The source of the site's images."""
        from fedotp.flower.site._source import OwnImages, Part

        return OwnImages(self.data, self.name) if self.data else Part(self.part)

    def shares(self, what: Share) -> bool:
        """True if the site shares `what`."""
        return get_args(Share).index(self.share) >= get_args(Share).index(what)

    def local(self, config: "Config") -> "Config":
        """Return the federation's configuration with the site's own folders, device and window."""
        from fedotp.classifier import has_name
        from fedotp.config import BackboneSettings
        from fedotp.flower._agreement import DisagreementError

        if self.data and not self.backbone and not has_name(config.backbone.name):
            raise DisagreementError(
                f"site {self.name}: the federation's backbone {config.backbone.name} is a file; "
                "specify its path at this site with --backbone"
            )
        data = replace(config.data, window=self.window or config.data.window_of(self.name))
        own = replace(data, store=str(self.state / "tokens"), root="")
        return replace(
            config,
            data=own if self.data else data,  # parts of one data set share its tokens
            backbone=BackboneSettings(self.backbone) if self.backbone else config.backbone,
            compute=replace(config.compute, device=self.device),
        )
