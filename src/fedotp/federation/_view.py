"""What a view is, and what was found in it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedotp.federation._data import Features
from fedotp.federation._evaluate import Predictions
from fedotp.federation._evaluation import Evaluation, evaluate_predictions
from fedotp.federation._random import Ints
from fedotp.federation._settings import Model


@dataclass(frozen=True, eq=False)
class Novel:
    """Test images of classes that nobody trains on: their names, features and labels (n,), numbered from 0.

    `digest` is that of the data set of these classes.
    """

    classes: tuple[str, ...]
    features: Features
    labels: Ints
    digest: str = ""


@dataclass(frozen=True, eq=False)
class View:
    """How well clients classify in one view: `classes` names to choose from, `images` different images.

    `model` is "personal" for what each client predicts with, "global" for the method's global part.
    """

    view: str
    model: Model
    classes: int
    images: int
    evaluation: Evaluation

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {**self.facts(), **self.evaluation.as_dict()}

    def facts(self) -> dict[str, Any]:
        """What it is of."""
        return {"view": self.view, "model": self.model, "classes": self.classes, "images": self.images}


def count(name: str, model: Model, lines: Predictions, n_classes: int, domains: tuple[str | None, ...]) -> View:
    """The view `name` from the predictions in it."""
    return View(name, model, n_classes, len(np.unique(lines.row)), evaluate_predictions(lines, n_classes, domains))
