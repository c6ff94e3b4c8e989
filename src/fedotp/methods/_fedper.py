"""PromptFL + FedPer: the context vectors are divided into a shared base and personal ones."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedotp._ranges import MOST, require_from
from fedotp.errors import FedotpError
from fedotp.methods._method import Method
from fedotp.methods._prompt import Kind, Parameters, Prompt
from fedotp.methods._task import Task


@dataclass(frozen=True)
class PromptFLPer(Method):
    """Arivazhagan et al., 2019, as adapted by Guo et al.: base vectors are averaged, personal ones stay.

    The paper does not give the division.

    Attributes:
        n_base: how many of the context vectors, the first ones, are shared; 0 for half of them.
    """

    n_base: int = 0

    name: ClassVar[str] = "promptfl-fedper"
    title: ClassVar[str] = "PromptFL+FedPer"
    reference: ClassVar[str] = "Arivazhagan et al., 2019 (arXiv 1912.00818)"

    def __post_init__(self) -> None:
        require_from(0, MOST, "method.n_base", self.n_base, " (0: half of the vectors)")

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """The base vectors (1, s_b, d)."""
        return {"base": self._divided(task)[0]}

    def private(self, task: Task) -> Parameters:
        """The personal vectors (1, s - s_b, d)."""
        return {"personal": self._divided(task)[1]}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """The prompt [base, personal]."""
        return (Prompt(Kind.BOTH, torch.cat([params["base"], params["personal"]], dim=-2)),)

    def _divided(self, task: Task) -> tuple[Tensor, Tensor]:
        context = task.contexts(1)
        n_ctx = context.shape[-2]
        n_base = self.n_base or n_ctx // 2
        if not 0 < n_base < n_ctx:
            raise FedotpError(
                f"method.n_base = {n_base}: must be from 1 to {n_ctx - 1}, fewer than the {n_ctx} context vectors"
            )
        return context[..., :n_base, :], context[..., n_base:, :]
