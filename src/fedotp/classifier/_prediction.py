"""Predictions and maps of a classifier."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedotp._text import counted
from fedotp.errors import FedotpError
from fedotp.limits import FLAGGED

Floats = NDArray[np.float64]
_SHOWN = 3  # images in the `repr` of a prediction


@dataclass(frozen=True, eq=False)
class Prediction:
    """Probabilities (n, K) of n images for the K `classes`.

    Attributes:
        members: (n, K) members of the prediction sets; None without a coverage.
        p_values: (n,) share of the site's own images that are at least as outlying; None without a calibration.
    """

    classes: tuple[str, ...]
    probabilities: Floats
    members: NDArray[np.bool_] | None = None
    p_values: Floats | None = None

    def __repr__(self) -> str:
        first = Prediction(self.classes, self.probabilities[:_SHOWN])
        sure = [f"{names[0][0]} {names[0][1]:.0%}" for names in first.top(1)]
        more = ", ..." if len(self.probabilities) > _SHOWN else ""
        return f"<Prediction of {counted(len(self.probabilities), 'image')}: {', '.join(sure)}{more}>"

    @property
    def labels(self) -> list[str]:
        """The most probable class of each image."""
        return [self.classes[k] for k in self.probabilities.argmax(-1)]

    def top(self, k: int = 3) -> list[list[tuple[str, float]]]:
        """Return the `k` most probable classes of each image with their probabilities, descending."""
        order = np.argsort(-self.probabilities, axis=-1, kind="stable")[:, :k]
        return [
            [(self.classes[i], float(row[i])) for i in best]
            for row, best in zip(self.probabilities, order, strict=True)
        ]

    @property
    def sets(self) -> list[list[str]]:
        """The prediction set of each image, its most probable classes first."""
        if self.members is None:
            raise FedotpError("prediction sets need a coverage: use predict(images, coverage=0.9)")
        ordered = self.top(len(self.classes))
        inside = [{self.classes[k] for k in np.flatnonzero(row)} for row in self.members]
        return [[name for name, _ in names if name in own] for names, own in zip(ordered, inside, strict=True)]

    @property
    def unlike(self) -> NDArray[np.bool_]:
        """True for images (n,) flagged as unlike the site's; at most 5 % of its own images are flagged."""
        if self.p_values is None:
            return np.zeros(len(self.probabilities), bool)
        return self.p_values <= FLAGGED


@dataclass(frozen=True, eq=False)
class Maps:
    """Maps of a client's N prompts over the g x g patches of an image, for the class `label`.

    Prompts of other clients are not included.

    Attributes:
        similarity: (N, g, g) cosines of patches and prompts.
        plan: (N, g, g) the transport plan T from patches, with a total mass of 1, to the prompts, which receive their
            shares of the transported mass. None for a method without transport.
        kinds: (N,) kinds of prompts: "global", "local", ...
    """

    label: str
    similarity: Floats
    plan: Floats | None
    kinds: tuple[str, ...]

    def __repr__(self) -> str:
        what = "similarity" if self.plan is None else "similarity and plan"
        return f"<Maps of {self.label}: {what} {self.similarity.shape} of {', '.join(self.kinds)}>"
