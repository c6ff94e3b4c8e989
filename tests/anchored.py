"""A method of next year's paper, as its author would write it: one file, and everything works on it.

`conftest.py` imports it, so that it is among the methods that the generic tests go through.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from fedotp.errors import FedotpError
from fedotp.methods import METHODS, Batch, Kind, Method, Parameters, Prompt, Task


@dataclass(frozen=True)
class Anchored(Method):
    """A global prompt held near the hand-written caption, and a temperature of each client's own."""

    strength: float = 0.01

    name: ClassVar[str] = "anchored"
    title: ClassVar[str] = "Anchored"
    reference: ClassVar[str] = "a test"

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 100:
            raise FedotpError(f"method.strength = {self.strength}: must be from 0 to 100")

    def shared(self, task: Task, n_clients: int) -> Parameters:
        anchor = F.normalize(task.template_features()[0, 0], dim=-1)
        return {"prompt": task.contexts(1), "anchor": anchor}  # (1, s, d), (K, e)

    def private(self, task: Task) -> Parameters:
        return {"sharpness": task.contexts(1).new_zeros(())}

    @property
    def fixed(self) -> frozenset[str]:
        return frozenset({"anchor"})

    @property
    def rate(self) -> Mapping[str, float]:
        return {"sharpness": 5.0}

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        return (Prompt(Kind.GLOBAL, params["prompt"]),)

    def score(self, task: Task, params: Parameters, batch: Batch, classes: Tensor) -> Tensor:
        return super().score(task, params, batch, classes) * params["sharpness"].exp()[:, None, None]

    def penalty(self, task: Task, params: Parameters, received: Parameters, classes: Tensor) -> Tensor:
        cosine = (F.normalize(classes[:, 0], dim=-1) * received["anchor"]).sum(-1)  # (C, K)
        return self.strength * (1 - cosine).mean(-1)


METHODS[Anchored.name] = Anchored

STRUCTURES = ("zeroshot", "coop", "fedotp", "pfedprompt", "pfedmoap", Anchored.name)
"""One method of each structure: nothing to train, all private, shared and private with transport, a memory of images,
a pool of other clients' prompts, and fixed parameters. Tests that hold for any method for one reason go through these;
contract, side by side, same numbers and golden tests go through all."""
NEED_CONTEXT = ("fedtpg", "promptfl-fedper", "fedmgp")  # vectors
WITHOUT_PROMPTS = ("zeroshot", "fedclip", "ridge", "fedcof", "personal-ridge")
IN_FEATURE_SPACE = [name for name in METHODS if name not in (*NEED_CONTEXT, *WITHOUT_PROMPTS)]
