"""PromptFL: one prompt for all, averaged by the server."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedotp.methods._method import Method, Parameters
from fedotp.methods._task import Task


@dataclass(frozen=True)
class PromptFL(Method):
    """Guo et al., IEEE TMC 2023: CoOp's prompt under federated averaging (Eq. 4)."""

    name: ClassVar[str] = "promptfl"
    title: ClassVar[str] = "PromptFL"
    reference: ClassVar[str] = "Guo et al., IEEE TMC 2023"

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """The prompt (1, s, d)."""
        return {"prompt": task.contexts(1)}

    def class_features(self, task: Task, params: Parameters) -> Tensor:
        """The features of the prompt."""
        return task.features(params["prompt"])
