"""The privacy that a site's updates have spent, over all runs, and what its owner requires of every order."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedotp._toml import show
from fedotp.federation import Settings, sampling_rate, steps_per_round
from fedotp.flower._agreement import DisagreementError
from fedotp.privacy import PrivacySettings, Releases, composed_epsilon

Hidden = Literal["example", "group"]
"""A unit that noise at the site can hide."""

_Line = Mapping[str, Any]


@dataclass(frozen=True)
class Required:
    """What must hold of everything that leaves a site, in all runs together.

    Attributes:
        epsilon, delta: the privacy that may be spent; delta is also no more than 1 / (training images).
        unit: what is hidden.
        noise: the least noise multiplier.
    """

    epsilon: float
    unit: Hidden
    delta: float
    noise: float

    def require(self, privacy: PrivacySettings, name: str, n_images: int = 1) -> None:
        """Refuse an order that promises less, at the site `name` with so many training images."""
        delta = min(self.delta, 1 / max(n_images, 1))
        wrong = {
            "unit": (privacy.unit not in (self.unit, "group"), show(self.unit)),
            "noise": (privacy.noise < self.noise, f"at least {self.noise:g}"),
            "delta": (privacy.delta > delta, f"at most {delta:g}"),
        }
        for key, (is_wrong, right) in wrong.items():
            if is_wrong:
                given = show(getattr(privacy, key))
                raise DisagreementError(f"site {name} requires privacy.{key} {right}; the server orders {given}")


class Ledger:
    """The updates that left a site, each a line in one file for all runs, on disk before the update leaves.

    It is that of the site and not of a run or a folder of images: whatever the server calls the run, and whichever
    images are added, copied or moved, all updates count for all images. Noise is never the same twice: a round that is
    made again, because the server did not get or did not write down the answer, is paid for again.
    """

    def __init__(self, path: Path, run: str, settings: Settings, n_images: int, required: Required | None) -> None:
        """As `settings` order it in `run`, at a site with so many training images whose owner has `required` it."""
        self._releases = Releases(path, is_right=_is_line)
        self._run = run
        self._privacy = settings.privacy
        self._required = required
        self._delta = min(required.delta, 1 / max(n_images, 1)) if required else settings.privacy.delta
        self._once: _Line = {"unit": "none", "noise": 0.0, "rate": 1.0, "steps": 1}
        if settings.privacy.of_steps:
            self._once = {
                "unit": settings.privacy.unit,
                "noise": settings.privacy.noise,
                "rate": sampling_rate(n_images, settings.federation.batch_size),
                "steps": steps_per_round(settings, n_images),
            }

    @property
    def steps(self) -> int:
        """The training steps behind what left in this run."""
        return sum(line["steps"] for line in self._of_run())

    def epsilon(self, rounds: int = 0) -> float:
        """What this run has spent, and would have after so many rounds more; for what it promises."""
        return _epsilon([*self._of_run(), *[self._once] * rounds], self._privacy.unit, self._privacy.delta)

    def total(self, rounds: int = 0) -> float:
        """The same of all runs, for what the owner requires (or, where nothing is, for what the run promises)."""
        unit = self._required.unit if self._required else self._privacy.unit
        return _epsilon([*self._releases.records, *[self._once] * rounds], unit, self._delta)

    def require_room(self, name: str) -> None:
        """Refuse a round that the run's budget, or the owner's for all runs, does not have room for."""
        budget = self._privacy.epsilon if self._privacy.of_steps else 0.0
        if budget and self.epsilon(1) > budget:
            raise DisagreementError(
                f"site {name} has spent epsilon {self.epsilon():.3g} of its images' privacy in this run, and another "
                f"round would exceed privacy.epsilon = {budget:g}"
            )
        if self._required and self.total(1) > self._required.epsilon:
            raise DisagreementError(
                f"site {name} has spent epsilon {self.total():.3g} of its images' privacy in all runs, and another "
                f"round, {self.total(1):.3g} with it, would exceed the {self._required.epsilon:g} that its owner allows"
            )

    def add(self, round_: int) -> None:
        """An update is about to leave."""
        self._releases.add({"run": self._run, "round": round_, **self._once})

    def _of_run(self) -> list[_Line]:
        return [line for line in self._releases.records if line["run"] == self._run]


def _epsilon(lines: Iterable[_Line], unit: str, delta: float) -> float:
    kinds: dict[tuple[float, float], int] = {}
    for line in lines:
        kind = _as_seen_by(unit, line)
        kinds[kind] = kinds.get(kind, 0) + line["steps"]
    return composed_epsilon([(*kind, steps) for kind, steps in kinds.items()], delta)


def _as_seen_by(unit: str, line: _Line) -> tuple[float, float]:
    """Noise and sampling rate of the steps of a line, for a `unit` to be hidden."""
    if line["unit"] == unit:
        return line["noise"], line["rate"]
    if (unit, line["unit"]) == ("example", "group"):
        # Without one of its images a group's clipped gradient is another one: up to 2 C away, wherever the group is
        # drawn. Renyi divergence is quasi-convex: it is no more than if the group always was.
        return line["noise"] / 2, 1.0
    return 0.0, 1.0


def _is_line(line: _Line) -> bool:
    numbers = [line.get(key) for key in ("noise", "rate", "steps", "round")]
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        return False
    return (
        isinstance(line.get("run"), str)
        and line.get("unit") in ("none", "example", "group")
        and line["noise"] >= 0
        and 0 < line["rate"] <= 1
        and type(line["steps"]) is int
        and line["steps"] >= 0
    )
