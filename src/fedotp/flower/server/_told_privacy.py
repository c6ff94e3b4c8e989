"""The privacy of their images that sites have spent, from what they tell of their steps."""

from typing import Any

from fedotp.federation import Settings, images_epsilon, steps_per_round
from fedotp.flower.server._registry import Member, Registry


class ToldPrivacy:
    """What the sites' updates tell of their images; a site keeps its own account, and stops by itself."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        """`settings.privacy.of_steps` holds."""
        self._settings = settings
        self._registry = registry

    @property
    def epsilon(self) -> float | None:
        """Of the site that has spent most; None without noise."""
        return max(self._of_sites().values(), default=0.0) if self._settings.privacy.noise else None

    @property
    def is_spent(self) -> bool:
        """Whether one more round would exceed some site's budget."""
        budget = self._settings.privacy.epsilon
        return bool(budget) and any(self._epsilon(member, 1) > budget for member in self._registry.with_a_part)

    def count(self, member: Member, told: int | None) -> None:
        """An update of a site was taken; it has told how many steps are behind all it sent, or in a sum cannot."""
        each = steps_per_round(self._settings, member.train_images)
        member.steps = member.steps + each if told is None else max(member.steps, told)

    def facts(self) -> dict[str, Any]:
        """What was promised, and spent."""
        most = max((member.steps for member in self._registry.with_a_part), default=0)
        facts = self._settings.privacy.facts(most, self.epsilon)
        return facts if self.epsilon is None else {**facts, "clients": self._of_sites()}

    def _of_sites(self) -> dict[str, float]:
        return {member.name: self._epsilon(member) for member in self._registry.with_a_part}

    def _epsilon(self, member: Member, rounds: int = 0) -> float:
        n = member.train_images
        return images_epsilon(self._settings, n, member.steps + rounds * steps_per_round(self._settings, n))
