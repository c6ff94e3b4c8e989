"""Who attacks a simulated federation, and how."""

from dataclasses import dataclass
from typing import Literal

from fedotp._ranges import MOST, require, require_choices, require_from

_SCALES = {"scaled": 10.0, "colluding": 1.5}


@dataclass(frozen=True)
class AttackSettings:
    """Clients that mean harm, in a simulation; they are not evaluated (`fedotp.federation.Attack`).

    Attributes:
        name: "none"; "label-flip": they train with wrong labels; "sign-flip": they send the opposite of what they have
            learned; "scaled": many times of it; "colluding": all send the same, as far from the mean of the honest
            updates as some of these are; "backdoor": they train images with a coloured patch to be of one class.
        share: how many of the clients that train, at least one; drawn from the seed.
        scale: by what an attacker's update is multiplied, of "colluding" how many standard deviations it is away; 0 for
            10 of "scaled", 1.5 of "colluding" and 1 of all others.
        target: of "label-flip" and "backdoor": the class that others are to be taken for; "" for the first.
        source: of "label-flip": the class whose images are labelled as the target; "" for all.
        patch: of "backdoor": the side of the patch, as a share of the image's shorter side.
        poisoned: of "backdoor": the share of its images that an attacker paints the patch on.
    """

    name: Literal["none", "label-flip", "sign-flip", "scaled", "colluding", "backdoor"] = "none"
    share: float = 0.2
    scale: float = 0.0
    target: str = ""
    source: str = ""
    patch: float = 0.25
    poisoned: float = 0.5

    def __post_init__(self) -> None:
        require_choices(self, "attack.")
        for key in ("share", "patch", "poisoned"):
            require(0 < getattr(self, key) <= 1, f"attack.{key}", getattr(self, key), "in (0, 1]")
        require_from(0, MOST, "attack.scale", self.scale, " (0: as it suits the attack)")

    @property
    def is_on_data(self) -> bool:
        """Whether attackers train on other images or labels than they have."""
        return self.name in ("label-flip", "backdoor")

    @property
    def factor(self) -> float:
        """By what an attacker's update is multiplied, or how many standard deviations it is away."""
        return self.scale or _SCALES.get(self.name, 1.0)
