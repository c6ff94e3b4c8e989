"""Zero-shot CLIP, CoOp, and PromptFL with its variants.

PromptFL averages one prompt for all clients. Variants fine-tune it before predictions (FT), penalise the distance from
it (FedProx), or share only some of its vectors (FedPer).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedotp._values import MOST, require_from
from fedotp.errors import FedotpError
from fedotp.methods._method import LearningRates, Method
from fedotp.methods._parts import Kind, Parameters, Prompt
from fedotp.methods._task import Task


@dataclass(frozen=True)
class ZeroShot(Method):
    """Radford et al., ICML 2021, with CoOp's caption for the data set."""

    name: ClassVar[str] = "zeroshot"
    title: ClassVar[str] = "Zero-shot CLIP"
    reference: ClassVar[str] = "Radford et al., ICML 2021"

    @property
    def global_part(self) -> Method:
        """The method itself: all clients have the captions."""
        return self

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the captions."""
        return (Prompt(Kind.CAPTION, None),)


@dataclass(frozen=True)
class CoOp(Method):
    """Zhou et al., IJCV 2022: one prompt per client, matched with the pooled feature, never shared.

    A client trains only in rounds in which it is sampled, so that all methods take the same number of steps.
    """

    name: ClassVar[str] = "coop"
    title: ClassVar[str] = "CoOp (local)"
    reference: ClassVar[str] = "Zhou et al., IJCV 2022"
    learning_rates: ClassVar[LearningRates] = LearningRates(falling=0.5)

    def private(self, task: Task) -> Parameters:
        """Return the prompt (1, s, d)."""
        return {"prompt": task.contexts(1)}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the client's own prompt."""
        return (Prompt(Kind.LOCAL, params["prompt"]),)


@dataclass(frozen=True)
class PromptFL(Method):
    """Guo et al., IEEE TMC 2023: CoOp's prompt under federated averaging (Eq. 4)."""

    name: ClassVar[str] = "promptfl"
    title: ClassVar[str] = "PromptFL"
    reference: ClassVar[str] = "Guo et al., IEEE TMC 2023"
    learning_rates: ClassVar[LearningRates] = LearningRates(falling=0.5)

    @property
    def global_part(self) -> Method:
        """PromptFL with the shared prompt alone."""
        return PromptFL()

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return the prompt (1, s, d)."""
        return {"prompt": task.contexts(1)}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the shared prompt."""
        return (Prompt(Kind.GLOBAL, params["prompt"]),)


@dataclass(frozen=True)
class PromptFLFineTuned(PromptFL):
    """Cheng et al., 2021. The fine-tuned copy is used for predictions only; it is never averaged.

    Attributes:
        epochs: epochs of fine-tuning; 0 for as many as in a round (the paper does not state a number).
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
        """Epochs of fine-tuning before predictions."""
        return self.epochs or None


@dataclass(frozen=True)
class PromptFLProx(PromptFL):
    """Li et al., MLSys 2020: the loss gains mu / 2 ||P - P_g||^2.

    Attributes:
        mu: weight of the squared distance from the global prompt (0.5 in the FedOTP authors' code).
    """

    mu: float = 0.5

    name: ClassVar[str] = "promptfl-fedprox"
    title: ClassVar[str] = "PromptFL+FedProx"
    reference: ClassVar[str] = "Li et al., MLSys 2020"
    learning_rates: ClassVar[LearningRates] = LearningRates()

    def __post_init__(self) -> None:
        require_from(0, MOST, "method.mu", self.mu, " (the authors use 0.5)")

    def penalty(self, task: Task, params: Parameters, received: Parameters, classes: Tensor) -> Tensor | None:
        """Return mu / 2 times the squared distance from the received prompt, (C,)."""
        distance = (params["prompt"] - received["prompt"]).square().flatten(1).sum(1)
        return self.mu / 2 * (distance.detach() if task.authors.detached_proximal else distance)


@dataclass(frozen=True)
class PromptFLPer(Method):
    """Arivazhagan et al., 2019, as adapted by Guo et al.: base vectors are shared, personal ones private.

    Attributes:
        n_base: number of context vectors, the first ones, that are shared; 0 for half (the paper does not state it).
    """

    n_base: int = 0

    name: ClassVar[str] = "promptfl-fedper"
    title: ClassVar[str] = "PromptFL+FedPer"
    reference: ClassVar[str] = "Arivazhagan et al., 2019 (arXiv 1912.00818)"

    def __post_init__(self) -> None:
        require_from(0, MOST, "method.n_base", self.n_base, " (0: half of the vectors)")

    def shared(self, task: Task, n_clients: int) -> Parameters:
        """Return the base vectors (1, s_b, d)."""
        return {"base": self._divided(task)[0]}

    def private(self, task: Task) -> Parameters:
        """Return the personal vectors (1, s - s_b, d)."""
        return {"personal": self._divided(task)[1]}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """Return the prompt [base, personal]."""
        return (Prompt(Kind.BOTH, torch.cat([params["base"], params["personal"]], dim=-2)),)

    def _divided(self, task: Task) -> tuple[Tensor, Tensor]:
        task.require_context("PromptFL+FedPer divides context vectors")
        context = task.contexts(1)
        n_ctx = context.shape[-2]
        n_base = self.n_base or n_ctx // 2
        if not 0 < n_base < n_ctx:
            raise FedotpError(f"method.n_base = {n_base}: must be from 1 to {n_ctx - 1} with {n_ctx} context vectors")
        return context[..., :n_base, :], context[..., n_base:, :]
