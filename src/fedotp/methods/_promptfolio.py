"""PromptFolio: a global and a local prompt whose class features are mixed in a fixed ratio."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedotp._values import require
from fedotp.clip import ImageFeatures
from fedotp.methods._method import LearningRates
from fedotp.methods._parts import Kind, Parameters, Prompt
from fedotp.methods._promptfl import PromptFL
from fedotp.methods._task import Task


@dataclass(frozen=True)
class PromptFolio(PromptFL):
    """Pan et al., NeurIPS 2024: P_g is shared, P_l private, and the scores of an image with the pooled feature f are

        f . w_k,   w_k = (1 - theta) z_k(P_g) + theta z_k(P_l),

    with z_k(P) the text feature of prompt P with class name k. f and z_k have length 1, but w_k is not normalised: the
    score is the weighted mean of both prompts' cosines.

    Attributes:
        theta: weight of the local prompt; that of the global one is 1 - theta.
    """

    theta: float = 0.4

    name: ClassVar[str] = "promptfolio"
    title: ClassVar[str] = "PromptFolio"
    reference: ClassVar[str] = "Pan et al., NeurIPS 2024"
    learning_rates: ClassVar[LearningRates] = LearningRates(paper=0.002)

    def __post_init__(self) -> None:
        right = isinstance(self.theta, int | float) and 0 <= self.theta <= 1  # a dial may be "confidence"
        require(right, "method.theta", self.theta, "a number from 0 to 1 (the paper uses 0.4)")

    @property
    def adjustable(self) -> dict[str, tuple[str, object]]:
        """The option `theta`, as the dial."""
        return {"dial": ("theta", self.theta)}

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return P_g (1, s, d), under the name that `global_part` uses."""
        return {"prompt": task.contexts(2)[:1]}

    def private(self, task: Task) -> Parameters:
        """Return P_l (1, s, d)."""
        return {"private": task.contexts(2)[1:]}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return P_g and P_l."""
        return Prompt(Kind.GLOBAL, params["prompt"]), Prompt(Kind.LOCAL, params["private"])

    def weights(self, task: Task, params: Parameters, image: ImageFeatures, classes: Tensor) -> Tensor:
        """Return 1 - theta and theta, (2,)."""
        theta = torch.full((), self.theta, dtype=task.dtype, device=task.device)
        return torch.stack([1 - theta, theta])
