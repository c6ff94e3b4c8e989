"""A site's own account of the privacy that its updates have spent."""

from pathlib import Path

from fedotp.federation import Settings, images_epsilon, steps_per_round
from fedotp.flower._agreement import DisagreementError
from fedotp.privacy import Releases


class Ledger:
    """The training steps behind updates that left, each update a line in a file, on disk before it leaves.

    Noise is never the same twice: a round that is made again, because the server did not get or did not write down the
    answer, is paid for again.
    """

    def __init__(self, path: Path, settings: Settings, n_images: int) -> None:
        """`settings.privacy.of_steps` holds; the site has so many training images."""
        self._releases = Releases(path, number="steps")
        self._settings = settings
        self._n_images = n_images
        self._each = steps_per_round(settings, n_images)

    @property
    def steps(self) -> int:
        """How many there were."""
        return sum(int(record["steps"]) for record in self._releases.records)

    def epsilon(self, rounds: int = 0) -> float:
        """What is spent, and would be after so many rounds more."""
        return images_epsilon(self._settings, self._n_images, self.steps + rounds * self._each)

    def require_room(self, name: str) -> None:
        """Refuse a round that the budget does not have room for."""
        budget = self._settings.privacy.epsilon
        if budget and self.epsilon(1) > budget:
            raise DisagreementError(
                f"site {name} has spent epsilon {self.epsilon():.3g} of its images' privacy, and another round would "
                f"exceed privacy.epsilon = {budget:g}"
            )

    def add(self, round_: int) -> None:
        """An update is about to leave."""
        self._releases.add({"round": round_, "steps": self._each})
