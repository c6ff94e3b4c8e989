"""The class prior of a classifier: class frequencies at a site, and the strength of their effect."""

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
from fedotp.federation import log_frequencies

STRONGEST = 10
_LEAST, _LARGEST = 1e-9, 1e15  # range of counts and shares
_KEYS = ("strength", "smoothing", "counts", "given")


@dataclass(frozen=True, eq=False)
class ClassPrior:
    """`strength` times the logarithms of class frequencies, added to the log probabilities.

    Attributes:
        strength: 0 for none, 1 for Bayes' rule.
        smoothing: added to every count before frequencies are computed.
        count: function that returns the counts (K,) on first use; raises `FedotpError` if they are unknown.
        given: True if the frequencies were given, False if they are those of the client's training images.
    """

    strength: float
    smoothing: float
    count: Callable[[], Floats] = field(repr=False)
    given: bool = False

    def __post_init__(self) -> None:
        """Check the ranges of numbers."""
        require_from(0, STRONGEST, "prior", self.strength)
        require_from(0, MOST, "smoothing", self.smoothing)

    @cached_property
    def counts(self) -> Floats:
        """(K,) number of images or share of each class."""
        return self.count()

    @property
    def logits(self) -> Tensor | None:
        """(1, K) addition to the log probabilities; None for nothing."""
        if not self.strength:
            return None
        return self.strength * log_frequencies(torch.from_numpy(self.counts), self.smoothing)[None]

    def changed(
        self, classes: Sequence[str], strength: float | None, frequencies: Mapping[str, float] | None
    ) -> "ClassPrior":
        """Return a prior with another strength or frequencies of `classes`, as for `Classifier.with_prior`."""
        if frequencies is None:
            return replace(self, strength=self.strength if strength is None else strength)
        counts = _in_order(frequencies, classes)
        return ClassPrior((self.strength or 1.0) if strength is None else strength, 0.0, lambda: counts, True)

    # As JSON -----------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary for `from_dict`."""
        return {key: getattr(self, key) for key in _KEYS} | {"counts": self.counts.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], n_classes: int) -> "ClassPrior":
        """Read the output of `as_dict` for `n_classes` classes, and validate it."""
        if not {*_KEYS[:3]} <= set(values) <= {*_KEYS}:
            raise FedotpError(f"a prior must have {', '.join(_KEYS)}, got {', '.join(map(str, values))[:80]}")
        counts, given = values["counts"], values.get("given", False)
        if not isinstance(counts, list) or len(counts) != n_classes:
            raise FedotpError(f"counts of a prior must be a list of {n_classes:,} numbers, one for each class")
        numbers = [values["strength"], values["smoothing"], *counts]
        if not all(type(value) in (int, float) and 0 <= value <= _LARGEST for value in numbers):
            raise FedotpError(f"strength, smoothing and counts of a prior must be numbers from 0 to {_LARGEST:g}")
        if min(counts) + values["smoothing"] < _LEAST:
            raise FedotpError(f"counts and smoothing of a prior must together be at least {_LEAST:g} for every class")
        if type(given) is not bool:
            raise FedotpError(f"given of a prior must be true or false, got {show(given)}")
        as_array = np.array(counts, np.float64)
        return cls(values["strength"], values["smoothing"], lambda: as_array, given)


def unknown_frequencies(why: str) -> ClassPrior:
    """Return a prior of strength 0 with unknown counts, whose use raises an error with the reason `why`."""

    def count() -> Floats:
        raise FedotpError(f"{why}; give the frequencies (--frequencies, with_prior(frequencies=...))")

    return ClassPrior(0.0, 0.0, count)


def _in_order(frequencies: Mapping[str, float], classes: Sequence[str]) -> Floats:
    """Return the frequencies in the order of `classes`, all of which are required."""
    for name, value in frequencies.items():
        if name not in classes:
            hint = f"did you mean {near!r}?" if (near := nearest(name, classes)) else f"known: {listed(classes)}"
            raise FedotpError(f"frequencies: unknown class {name!r}; {hint}")
        if not _LEAST <= value <= _LARGEST:
            right = f"a share or a number of images, from {_LEAST:g} to {_LARGEST:g}"
            raise FedotpError(f"frequencies: {name} = {value:g}: must be {right}")
    if missing := [name for name in classes if name not in frequencies]:
        raise FedotpError(
            f"frequencies: missing for {listed(missing, 3)}; give one for each of the {len(classes)} classes"
        )
    return np.array([frequencies[name] for name in classes], np.float64)
