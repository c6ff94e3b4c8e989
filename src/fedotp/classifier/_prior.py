"""The class prior of a classifier: how frequent the classes are where it is used, and how much that counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedotp._values import MOST, require_from, show
from fedotp.classifier._prediction import Floats
from fedotp.errors import FedotpError, listed, nearest
from fedotp.federation.testing import log_frequencies

STRONGEST = 10
_LEAST, _LARGEST = 1e-9, 1e15  # of a count, or a share
_KEYS = ("strength", "smoothing", "counts", "given")


@dataclass(frozen=True, eq=False)
class ClassPrior:
    """`strength` times the logarithms of class frequencies, which are added to the logarithms of the probabilities.

    Attributes:
        strength: 0 for nothing, 1 as Bayes' rule has it.
        smoothing: is added to every count before frequencies are taken.
        count: gives the counts (K,) when they are first needed; a `FedotpError` where they are unknown.
        given: whether a person gave the frequencies; otherwise they are those of the client's training images.
    """

    strength: float
    smoothing: float
    count: Callable[[], Floats] = field(repr=False)
    given: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        require_from(0, STRONGEST, "prior", self.strength)
        require_from(0, MOST, "smoothing", self.smoothing)

    @cached_property
    def counts(self) -> Floats:
        """(K,) how many images each class has, or its share."""
        return self.count()

    @property
    def logits(self) -> Tensor | None:
        """(1, K) what is added to the logarithms of the probabilities; None for nothing."""
        if not self.strength:
            return None
        return self.strength * log_frequencies(torch.from_numpy(self.counts), self.smoothing)[None]

    def changed(
        self, classes: Sequence[str], strength: float | None, frequencies: Mapping[str, float] | None, smoothing: float
    ) -> "ClassPrior":
        """Another strength, and other frequencies of `classes`; arguments as of `Classifier.with_prior`."""
        if frequencies is None:
            return replace(self, strength=self.strength if strength is None else strength)
        counts = _in_order(frequencies, classes, smoothing)
        return ClassPrior((self.strength or 1.0) if strength is None else strength, smoothing, lambda: counts, True)

    # As JSON -----------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; `from_dict` reads it."""
        return {key: getattr(self, key) for key in _KEYS} | {"counts": self.counts.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], n_classes: int) -> "ClassPrior":
        """Read what `as_dict` wrote, for so many classes; nothing in it is trusted."""
        if not {*_KEYS[:3]} <= set(values) <= {*_KEYS}:
            raise FedotpError(f"a prior has {', '.join(_KEYS)}, not {', '.join(map(str, values))[:80]}")
        counts, given = values["counts"], values.get("given", False)
        if not isinstance(counts, list) or len(counts) != n_classes:
            raise FedotpError(f"counts of a prior must be a list of {n_classes:,} numbers, one for each class")
        numbers = [values["strength"], values["smoothing"], *counts]
        if not all(type(value) in (int, float) and 0 <= value <= _LARGEST for value in numbers):
            raise FedotpError(f"strength, smoothing and counts of a prior must be numbers from 0 to {_LARGEST:g}")
        if min(counts) + values["smoothing"] < _LEAST:
            raise FedotpError(f"counts and smoothing of a prior must together be at least {_LEAST:g} for every class")
        if type(given) is not bool:
            raise FedotpError(f"given of a prior must be true or false, not {show(given)}")
        as_array = np.array(counts, np.float64)
        return cls(values["strength"], values["smoothing"], lambda: as_array, given)


def unknown_frequencies(why: str) -> ClassPrior:
    """A prior of strength 0 whose counts are unknown: asking for them gives the reason `why`."""

    def count() -> Floats:
        raise FedotpError(f"{why}; give the frequencies (--frequencies, with_prior(frequencies=...))")

    return ClassPrior(0.0, 0.0, count)


def _in_order(frequencies: Mapping[str, float], classes: Sequence[str], smoothing: float) -> Floats:
    """The frequencies of `classes`, each of which must have one."""
    for name, value in frequencies.items():
        if name not in classes:
            meant = f"did you mean {near!r}?" if (near := nearest(name, classes)) else f"they are {listed(classes)}"
            raise FedotpError(f"frequencies: no class is called {name!r}; {meant}")
        if not _LEAST <= value + smoothing <= _LARGEST or value < 0:
            right = f"a share or a number of images, from {_LEAST:g} to {_LARGEST:g}"
            raise FedotpError(f"frequencies: {name} = {value:g}: must be {right}")
    if missing := [name for name in classes if name not in frequencies]:
        raise FedotpError(
            f"frequencies: {listed(missing, 3)} without one; give one for each of the {len(classes)} classes"
        )
    return np.array([frequencies[name] for name in classes], np.float64)
