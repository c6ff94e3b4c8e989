"""Zero-shot CLIP: hand-written captions, nothing learned."""

from dataclasses import dataclass
from typing import ClassVar

from fedotp.methods._method import Method
from fedotp.methods._prompt import Kind, Parameters, Prompt
from fedotp.methods._task import Task


@dataclass(frozen=True)
class ZeroShot(Method):
    """Radford et al., ICML 2021, with the caption CoOp uses for the data set."""

    name: ClassVar[str] = "zeroshot"
    title: ClassVar[str] = "Zero-shot CLIP"
    reference: ClassVar[str] = "Radford et al., ICML 2021"

    @property
    def global_part(self) -> Method:
        """Everyone has the captions."""
        return self

    def prompts(self, task: Task, params: Parameters) -> tuple[Prompt, ...]:
        """The captions: there is nothing to learn in them."""
        return (Prompt(Kind.CAPTION, None),)
