"""PromptFL + FedProx: clients stay near the averaged prompt."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedotp._ranges import MOST, require_from
from fedotp.methods._method import LearningRates
from fedotp.methods._prompt import Parameters
from fedotp.methods._promptfl import PromptFL
from fedotp.methods._task import Task


@dataclass(frozen=True)
class PromptFLProx(PromptFL):
    """Li et al., MLSys 2020: the loss gains mu / 2 ||P - P_g||^2.

    Attributes:
        mu: how strongly a client is drawn to the global prompt (0.5 in the FedOTP authors' code).
        detached: for comparison with that code, whose term has no gradient: it is added to the loss that is reported,
            pulls nothing, and the method is PromptFL.
    """

    mu: float = 0.5
    detached: bool = False

    name: ClassVar[str] = "promptfl-fedprox"
    title: ClassVar[str] = "PromptFL+FedProx"
    reference: ClassVar[str] = "Li et al., MLSys 2020"
    learning_rates: ClassVar[LearningRates] = LearningRates()

    def __post_init__(self) -> None:
        require_from(0, MOST, "method.mu", self.mu, " (the authors use 0.5)")

    def penalty(self, task: Task, params: Parameters, received: Parameters, classes: Tensor) -> Tensor | None:
        """mu / 2 times the squared distance from what the server sent, (C,)."""
        distance = (params["prompt"] - received["prompt"]).square().flatten(1).sum(1)
        return self.mu / 2 * (distance.detach() if self.detached else distance)
