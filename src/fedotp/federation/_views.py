"""Views: on which images, among which names and by which model a federation is evaluated.

All but the clients' own tests are made in at most four passes, each a test like theirs:

    personal model   images of the classes trained on, shown to all clients     base, neighbours
                     images of the novel classes, among the novel names         novel
    global part      images of the classes trained on                           global, and each view's own images
                     images of the novel classes                                novel
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedotp.errors import FedotpError
from fedotp.federation._data import Features, FederatedData, Images
from fedotp.federation._evaluate import LocalTester, Predictions
from fedotp.federation._evaluation import Evaluation, evaluate_predictions
from fedotp.federation._random import Ints
from fedotp.federation._settings import Model, Settings
from fedotp.methods import Method, Task

TRAINED, NOVEL = "images of trained classes", "images of novel classes"
GLOBAL_TRAINED, GLOBAL_NOVEL = f"global part, {TRAINED}", f"global part, {NOVEL}"
"""The passes."""
BEFORE = "before joining"


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


class Views:
    """The views that a federation is asked for, and the tests they take."""

    def __init__(
        self,
        method: Method,
        task: Task,
        data: FederatedData,
        settings: Settings,
        *,
        held_out: Ints,
        novel: Novel | None,
    ) -> None:
        """`held_out` clients have not trained: what is theirs is shown to nobody else."""
        self.asked = frozenset(settings.evaluation.views)
        self.held_out = held_out
        self.part = method.global_part if "global" in self.asked else None
        self._data = data
        self._n_classes = len(task.classes)
        if "novel" in self.asked and novel is None:
            raise FedotpError('evaluation.views has "novel": a federation has novel classes with data.classes = "base"')
        bound = task.bound_to_classes or method.bound_to_classes
        self._novel = novel if "novel" in self.asked else None
        self.missing = self._find_missing(method, bound)
        self._rows = self._images_of_all()
        self.testers: dict[str, LocalTester] = {}
        if self.asked & {"base", "neighbours"}:
            self.testers[TRAINED] = LocalTester(method, task, self._shown(data.test, self._lists()), settings)
        if self._novel and not bound:
            self.testers[NOVEL] = LocalTester(
                method, replace(task, classes=self._novel.classes), self._shown_novel(len(data)), settings
            )
        if self.part is not None:
            self.testers[GLOBAL_TRAINED] = LocalTester(
                self.part, task, self._shown(data.test, [self._global_rows()]), settings
            )
        if self.part is not None and self._novel and not (task.bound_to_classes or self.part.bound_to_classes):
            self.testers[GLOBAL_NOVEL] = LocalTester(
                self.part, replace(task, classes=self._novel.classes), self._shown_novel(1), settings
            )

    def _find_missing(self, method: Method, bound: str) -> list[dict[str, str]]:
        """The views there can be no number of, and why."""
        missing = []
        if "novel" in self.asked and bound:
            missing.append({"view": "novel", "model": "personal", "why": bound})
        if "global" in self.asked and self.part is None:
            why = f"{method.title} has no global part: nothing the server sends predicts by itself"
            missing.append({"view": "global", "model": "global", "why": why})
        return missing

    # Which images ------------------------------------------------------------------------------------------

    def _images_of_all(self) -> Ints:
        """The whole test set, but for images that only held-out clients have."""
        test = self._data.test
        others = np.setdiff1d(np.arange(len(self._data)), self.held_out)
        away = _union([test.clients[i] for i in self.held_out])
        return np.setdiff1d(np.arange(len(test.labels)), np.setdiff1d(away, _union([test.clients[i] for i in others])))

    def _global_rows(self) -> Ints:
        """What the global part is shown: all, and where held-out clients are looked at theirs."""
        theirs = [self._data.test.clients[i] for i in self.held_out] if "holdout" in self.asked else []
        return np.union1d(self._rows, _union(theirs))

    def _lists(self) -> list[Ints]:
        """Which of the images of trained classes each client is shown."""
        if "base" in self.asked:
            return [self._rows] * len(self._data)
        return [self._rows[lacks] for lacks in self._lacks(np.arange(len(self._data)))]

    def _lacks(self, clients: Ints) -> NDArray[np.bool_]:
        """Of which of the images shown to all the `clients` (C,) have no class in training: (C, n)."""
        train, labels = self._data.train, self._data.test.labels[self._rows]
        return np.stack([~np.isin(labels, train.labels[train.clients[i]]) for i in clients])

    def _shown(self, images: Images, lists: Sequence[Ints]) -> FederatedData:
        """The federation, in which each client, or one for all, has the test images of its list."""
        data = replace(self._data, test=replace(images, clients=tuple(lists)))
        if len(lists) == len(self._data):
            return data
        return replace(data, names=("all",), domains=(None,), train=replace(data.train, clients=(_NONE,)))

    def _shown_novel(self, n_clients: int) -> FederatedData:
        assert self._novel is not None
        everything = np.arange(len(self._novel.labels))
        images = Images(self._novel.features, self._novel.labels, ())
        return self._shown(images, [everything] * n_clients)

    # What was seen -----------------------------------------------------------------------------------------

    def seen(self, lines: dict[str, Predictions], clients: Ints) -> list[View]:
        """The views of `clients` (C,) that trained, from the predictions in each pass, held-out ones before they join.

        Their own tests with the personal model are not among them.
        """
        views = []
        if TRAINED in lines:
            views += self._of_trained(lines[TRAINED])
        if NOVEL in lines:
            views.append(self._novel_view("personal", lines[NOVEL], self._data.domains))
        if GLOBAL_TRAINED in lines:
            views += self._of_global(lines[GLOBAL_TRAINED], clients)
        if GLOBAL_NOVEL in lines:
            views.append(self._novel_view("global", lines[GLOBAL_NOVEL], (None,)))
        return views

    def view(self, name: str, model: Model, lines: Predictions) -> View:
        """Count the predictions of a view of classes trained on."""
        return _count(name, model, lines, self._n_classes, self._data.domains)

    def _of_trained(self, lines: Predictions) -> list[View]:
        views = [self.view("base", "personal", lines)] if "base" in self.asked else []
        if "neighbours" in self.asked:
            has = np.zeros((len(self._data), self._n_classes), bool)
            for client, rows in enumerate(self._data.train.clients):
                has[client, self._data.train.labels[rows]] = True
            others = _some(lines, ~has[lines.client, lines.label])
            views += [self.view("neighbours", "personal", others)] if len(others.row) else []
        return views

    def _of_global(self, lines: Predictions, clients: Ints) -> list[View]:
        """What the global part predicts for all images, and for those of each view."""
        order = np.argsort(lines.row)
        whole = _count("global", "global", _some(lines, np.isin(lines.row, self._rows)), self._n_classes, (None,))
        test = self._data.test.clients
        lists = {"personal": [test[i] for i in clients]}
        if "neighbours" in self.asked:
            lists["neighbours"] = [self._rows[lacks] for lacks in self._lacks(clients)]
        views = [whole]
        for name, rows in lists.items():
            views += self._assigned(name, lines, order, clients, rows)
        if "holdout" in self.asked:
            views += self._assigned(BEFORE, lines, order, self.held_out, [test[i] for i in self.held_out])
        return views

    def _assigned(self, name: str, lines: Predictions, order: Ints, clients: Ints, lists: Sequence[Ints]) -> list[View]:
        """The global part's lines as those of `clients` (C,), each with the images of its list."""
        rows = np.concatenate([*lists, _NONE])
        if not len(rows):
            return []
        at = order[np.searchsorted(lines.row, rows, sorter=order)]
        who = np.repeat(clients, [len(own) for own in lists])
        return [self.view(name, "global", replace(_some(lines, at), client=who))]

    def _novel_view(self, model: Model, lines: Predictions, domains: tuple[str | None, ...]) -> View:
        assert self._novel is not None
        return _count("novel", model, lines, len(self._novel.classes), domains)


_NONE = np.empty(0, np.int64)


def _count(name: str, model: Model, lines: Predictions, n_classes: int, domains: tuple[str | None, ...]) -> View:
    return View(name, model, n_classes, len(np.unique(lines.row)), evaluate_predictions(lines, n_classes, domains))


def _some(lines: Predictions, at: Ints | NDArray[np.bool_]) -> Predictions:
    return Predictions(**{name: values[at] for name, values in vars(lines).items()})


def _union(lists: Sequence[Ints]) -> Ints:
    return np.unique(np.concatenate([_NONE, *lists]))
