"""Settings of a site.

The command line shows the defaults, so methods import torch and Flower on use.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from fedotp._values import require_choices
from fedotp.errors import FedotpError
from fedotp.images import read_window

if TYPE_CHECKING:
    from fedotp.config import Config
    from fedotp.flower.site._policy import Policy
    from fedotp.flower.site._source import OwnImages, Part

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
        policy: the owner's limits, as TOML; see Policy.
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
    policy: str = ""

    def __post_init__(self) -> None:
        require_choices(self)
        if self.window:
            read_window(self.window)  # raises if invalid
        if bool(self.data) == (self.part >= 0):
            raise FedotpError(f"site {self.name}: specify either its images or the number of its part")

    @property
    def limits(self) -> "Policy":
        """The parsed policy."""
        from fedotp.flower.site._policy import parse_policy

        return parse_policy(self.policy)

    @property
    def source(self) -> "OwnImages | Part":
        """The source of the site's images."""
        from fedotp.flower.site._source import OwnImages, Part

        return OwnImages(self.data, self.name) if self.data else Part(self.part)

    def shares(self, what: Share) -> bool:
        """True if the site shares `what`, and its policy permits it."""
        order = get_args(Share)
        return order.index(what) <= min(order.index(self.share), order.index(self.limits.share))

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
