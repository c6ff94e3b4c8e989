"""Zero-shot CLIP: hand-written captions, nothing learned."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedotp.methods._method import Method, Parameters
from fedotp.methods._task import Task


@dataclass(frozen=True)
class ZeroShot(Method):
    """Radford et al., ICML 2021, with the caption CoOp uses for the data set."""

    name: ClassVar[str] = "zeroshot"
    title: ClassVar[str] = "Zero-shot CLIP"
    reference: ClassVar[str] = "Radford et al., ICML 2021"

    def class_features(self, task: Task, params: Parameters) -> Tensor:
        """The features of the captions, (1, 1, K, e) for all clients."""
        return task.template_features()
