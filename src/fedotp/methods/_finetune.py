"""PromptFL + FT: the averaged prompt, fine-tuned by each client before it predicts."""

from dataclasses import dataclass
from typing import ClassVar

from fedotp._ranges import MOST, require_from
from fedotp.methods._method import LearningRates
from fedotp.methods._promptfl import PromptFL


@dataclass(frozen=True)
class PromptFLFineTuned(PromptFL):
    """Cheng et al., 2021. The tuned copy is used to predict and then forgotten; it is never averaged.

    Attributes:
        epochs: passes over the client's images, 0 for as many as in a round (the paper does not say how many).
    """

    epochs: int = 0

    name: ClassVar[str] = "promptfl-ft"
    title: ClassVar[str] = "PromptFL+FT"
    reference: ClassVar[str] = "Cheng et al., 2021 (arXiv 2108.07313)"
    learning_rates: ClassVar[LearningRates] = LearningRates()

    def __post_init__(self) -> None:
        require_from(0, MOST, "method.epochs", self.epochs, " (0: as many as in a round)")

    @property
    def finetune_epochs(self) -> int | None:
        """Epochs before a prediction."""
        return self.epochs or None
