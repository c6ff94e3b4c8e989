"""CoOp: every client for itself."""

from dataclasses import dataclass
from typing import ClassVar

from fedotp.methods._method import LearningRates, Method
from fedotp.methods._prompt import Kind, Parameters, Prompt
from fedotp.methods._task import Task


@dataclass(frozen=True)
class CoOp(Method):
    """Zhou et al., IJCV 2022: one prompt per client, matched with the pooled feature, never shared.

    A client trains in the rounds it is sampled for, so that all methods of a comparison take equally many steps.
    """

    name: ClassVar[str] = "coop"
    title: ClassVar[str] = "CoOp (local)"
    reference: ClassVar[str] = "Zhou et al., IJCV 2022"
    learning_rates: ClassVar[LearningRates] = LearningRates(falling=0.5)

    def private(self, task: Task) -> Parameters:
        """The prompt (1, s, d)."""
        return {"prompt": task.contexts(1)}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """The client's own."""
        return (Prompt(Kind.LOCAL, params["prompt"]),)
