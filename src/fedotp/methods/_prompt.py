"""What a method learns, by name, and the prompts it makes of it."""

from enum import StrEnum
from typing import NamedTuple

from torch import Tensor

Parameters = dict[str, Tensor]


class Kind(StrEnum):
    """What a prompt is to its client."""

    GLOBAL = "global"  # the same for everyone
    LOCAL = "local"  # the client's own
    BOTH = "global and local"  # made of both
    OTHERS = "another client's"  # received, and held fixed
    CAPTION = "caption"  # written by hand, nobody learns it


class Prompt(NamedTuple):
    """Prompts of one kind and length.

    `context` is (C, n, s, d), n prompts of s vectors, or (C, n, K, s, d) with vectors of their own for every class;
    None stands for the task's caption.
    """

    kind: Kind
    context: Tensor | None

    @property
    def n_prompts(self) -> int:
        """How many they are, n."""
        return 1 if self.context is None else self.context.shape[1]
