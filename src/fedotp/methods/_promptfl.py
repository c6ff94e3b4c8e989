"""PromptFL: one prompt for all, averaged by the server."""

from dataclasses import dataclass
from typing import ClassVar

from fedotp.methods._method import LearningRates, Method
from fedotp.methods._prompt import Kind, Parameters, Prompt
from fedotp.methods._task import Task


@dataclass(frozen=True)
class PromptFL(Method):
    """Guo et al., IEEE TMC 2023: CoOp's prompt under federated averaging (Eq. 4)."""

    name: ClassVar[str] = "promptfl"
    title: ClassVar[str] = "PromptFL"
    reference: ClassVar[str] = "Guo et al., IEEE TMC 2023"
    learning_rates: ClassVar[LearningRates] = LearningRates(falling=0.5)

    @property
    def global_part(self) -> Method:
        """Everything, as nobody has anything of his own."""
        return PromptFL()

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """The prompt (1, s, d)."""
        return {"prompt": task.contexts(1)}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """The one of all."""
        return (Prompt(Kind.GLOBAL, params["prompt"]),)
