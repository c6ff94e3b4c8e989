"""What a method sees of the images."""

from enum import StrEnum
from typing import NamedTuple

from torch import Tensor

from fedotp.clip import ImageFeatures


class Need(StrEnum):
    """Features of an image that a method may ask for; hidden states and pixels would be named here."""

    POOLED = "pooled"
    TOKENS = "tokens"


class Memory(NamedTuple):
    """The training images of C clients, padded to the longest: what a non-parametric method may look up.

    features: pooled (C, M, e) and spatial (C, M, e), the mean of the normalised patch tokens; labels (C, M), -1 where
    a client has fewer images.
    """

    pooled: Tensor
    spatial: Tensor
    labels: Tensor

    def rows(self, at: Tensor | slice) -> "Memory":
        """Of some of the clients, in the order given."""
        return Memory(self.pooled[at], self.spatial[at], self.labels[at])


class Batch(NamedTuple):
    """B images of each of C clients.

    Attributes:
        image:  pooled (C, B, e) and tokens (C, B, V, e).
        labels: (C, B), -1 for padding and for images to be predicted.
        places: (C, B) position of a training image in its client's memory; None for images to be predicted.
        memory: of the clients, for methods with `uses_memory`.
        padded: (C, B) true for padding; None where labels tell it, or nothing is known.
        apart:  whether each image's own loss is asked for, instead of their mean.
    """

    image: ImageFeatures
    labels: Tensor
    places: Tensor | None = None
    memory: Memory | None = None
    padded: Tensor | None = None
    apart: bool = False

    @property
    def counted(self) -> Tensor:
        """Which images (C, B) are none of padding, as far as is known; none where nothing is."""
        return self.labels >= 0 if self.padded is None else ~self.padded
