"""Views: on which images, among which names and by which model a federation is evaluated.

All but the clients' own tests are made in at most four passes, each a test like theirs:

    personal model   images of the classes trained on, shown to all clients     base, neighbours
                     images of the novel classes, among the novel names         novel
    global part      images of the classes trained on                           global, and each view's own images
                     images of the novel classes                                novel

Where attackers aim at a class, there is one more, "attack success": the clients' own images as attackers show them,
to be taken for that class. Its accuracy is the share that is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedotp.errors import FedotpError
from fedotp.federation._attack import Trap, attacked_test
from fedotp.federation._clients import Clients
from fedotp.federation._data import Features, FederatedData, Images
from fedotp.federation._evaluation import Evaluation, LocalTester, Predictions, evaluate_predictions
from fedotp.federation._local import OnImages
from fedotp.federation._random import Ints
from fedotp.federation._settings import Model, Settings
from fedotp.methods import Method, Parameters, Task

TRAINED, NOVEL = "images of trained classes", "images of novel classes"
GLOBAL_TRAINED, GLOBAL_NOVEL = f"global part, {TRAINED}", f"global part, {NOVEL}"
"""The passes."""
_BEFORE, _SUCCESS = "before joining", "attack success"
_NONE = np.empty(0, np.int64)


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
        absent: Ints,
        novel: Novel | None,
        trap: Trap | None = None,
    ) -> None:
        """`held_out` clients have not trained: what is theirs is shown to nobody else; nor is that of the `absent`."""
        self.asked = frozenset(settings.evaluation.views)
        self._held_out = held_out
        self._trained = np.setdiff1d(np.arange(len(data)), np.union1d(held_out, absent))
        self._part = method.global_part if "global" in self.asked else None
        self._data = data
        self._n_classes = len(task.classes)
        if "novel" in self.asked and novel is None:
            raise FedotpError('evaluation.views has "novel": a federation has novel classes with data.classes = "base"')
        bound = task.bound_to_classes or method.bound_to_classes
        self._novel = novel if "novel" in self.asked else None
        self._rows = self._images_of_all()
        self.missing = self._find_missing(method, bound)
        self.testers: dict[str, LocalTester] = {}
        if self.asked & {"base", "neighbours"}:
            self.testers[TRAINED] = LocalTester(method, task, self._shown(data.test, self._lists()), settings)
        if self._novel and not bound:
            self.testers[NOVEL] = LocalTester(
                method, replace(task, classes=self._novel.classes), self._shown_novel(len(data)), settings
            )
        if trap is not None:
            self.testers[_SUCCESS] = LocalTester(method, task, attacked_test(data, trap), settings)
        if self._part is not None:
            self.testers[GLOBAL_TRAINED] = LocalTester(
                self._part, task, self._shown(data.test, [self._global_rows()]), settings
            )
        if self._part is not None and self._novel and not (task.bound_to_classes or self._part.bound_to_classes):
            self.testers[GLOBAL_NOVEL] = LocalTester(
                self._part, replace(task, classes=self._novel.classes), self._shown_novel(1), settings
            )

    def _find_missing(self, method: Method, bound: str) -> list[dict[str, str]]:
        """The views there can be no number of, and why."""
        missing = []
        if "novel" in self.asked and bound:
            missing.append({"view": "novel", "model": "personal", "why": bound})
        if "global" in self.asked and self._part is None:
            why = f"{method.title} has no global part: nothing the server sends predicts by itself"
            missing.append({"view": "global", "model": "global", "why": why})
        if "neighbours" in self.asked and not self._lacks(self._trained).any():
            why = "every client has training images of every class"
            missing.append({"view": "neighbours", "model": "personal", "why": why})
        if "holdout" in self.asked and not self._data.test.sizes(self._held_out).any():
            missing.append({"view": _BEFORE, "model": "personal", "why": "no held-out client has a test image"})
        return missing

    # Which images ------------------------------------------------------------------------------------------

    def _images_of_all(self) -> Ints:
        """The whole test set, but for images that only clients have who did not train."""
        test, trained = self._data.test, self._trained
        away = _union([test.clients[i] for i in np.setdiff1d(np.arange(len(self._data)), trained)])
        away = np.union1d(np.setdiff1d(away, _union([test.clients[i] for i in trained])), self._data.withheld)
        return np.setdiff1d(np.arange(len(test.labels)), away)

    def _global_rows(self) -> Ints:
        """What the global part is shown: all, and where held-out clients are looked at theirs."""
        theirs = [self._data.test.clients[i] for i in self._held_out] if "holdout" in self.asked else []
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

    # What is seen ------------------------------------------------------------------------------------------

    def see(
        self, federation: Clients, clients: Ints, newcomer: Parameters, on_images: OnImages | None = None
    ) -> list[View]:
        """The views of `clients` (C,) of a federation, all but their own tests with the personal model.

        `newcomer` (1, ...) is what somebody receives who is new; held-out clients have not joined yet.
        """
        parts: dict[str, list[Predictions]] = {}
        if personal := [test for test in (TRAINED, NOVEL, _SUCCESS) if test in self.testers]:
            for group, params in federation.deployed(clients):
                for test in personal:
                    parts.setdefault(test, []).append(federation.predict_with(group, params, on_images, test=test))
        if self._part is not None:
            params = self._part.deployed(newcomer, {})
            for test in [test for test in (GLOBAL_TRAINED, GLOBAL_NOVEL) if test in self.testers]:
                parts[test] = [federation.predict_with(np.zeros(1, np.int64), params, on_images, test=test)]
        views = self._seen({test: Predictions.join(some) for test, some in parts.items()}, clients)
        if "holdout" in self.asked and len(self._held_out):
            lines = federation.predict_new(self._held_out)
            views += [self._view(_BEFORE, "personal", lines)] if len(lines.row) else []
        return views

    def _seen(self, lines: dict[str, Predictions], clients: Ints) -> list[View]:
        """The views that follow from the predictions in each pass."""
        views = []
        if TRAINED in lines:
            views += self._of_trained(lines[TRAINED])
        if NOVEL in lines:
            views.append(self._novel_view("personal", lines[NOVEL], self._data.domains))
        if _SUCCESS in lines and len(lines[_SUCCESS].row):
            views.append(self._view(_SUCCESS, "personal", lines[_SUCCESS]))
        if GLOBAL_TRAINED in lines:
            views += self._of_global(lines[GLOBAL_TRAINED], clients)
        if GLOBAL_NOVEL in lines:
            views.append(self._novel_view("global", lines[GLOBAL_NOVEL], (None,)))
        return views

    def _view(self, name: str, model: Model, lines: Predictions) -> View:
        """Count the predictions of a view of classes trained on."""
        return count(name, model, lines, self._n_classes, self._data.domains)

    def _of_trained(self, lines: Predictions) -> list[View]:
        views = [self._view("base", "personal", lines)] if "base" in self.asked else []
        if "neighbours" in self.asked:
            has = np.zeros((len(self._data), self._n_classes), bool)
            for client, rows in enumerate(self._data.train.clients):
                has[client, self._data.train.labels[rows]] = True
            others = _some(lines, ~has[lines.client, lines.label])
            views += [self._view("neighbours", "personal", others)] if len(others.row) else []
        return views

    def _of_global(self, lines: Predictions, clients: Ints) -> list[View]:
        """What the global part predicts for all images, and for those of each view."""
        order = np.argsort(lines.row)
        whole = count("global", "global", _some(lines, np.isin(lines.row, self._rows)), self._n_classes, (None,))
        test = self._data.test.clients
        lists = {"personal": [test[i] for i in clients]}
        if "neighbours" in self.asked:
            lists["neighbours"] = [self._rows[lacks] for lacks in self._lacks(clients)]
        views = [whole]
        for name, rows in lists.items():
            views += self._assigned(name, lines, order, clients, rows)
        if "holdout" in self.asked:
            views += self._assigned(_BEFORE, lines, order, self._held_out, [test[i] for i in self._held_out])
        return views

    def _assigned(self, name: str, lines: Predictions, order: Ints, clients: Ints, lists: Sequence[Ints]) -> list[View]:
        """The global part's lines as those of `clients` (C,), each with the images of its list."""
        rows = np.concatenate([*lists, _NONE])
        if not len(rows):
            return []
        at = order[np.searchsorted(lines.row, rows, sorter=order)]
        who = np.repeat(clients, [len(own) for own in lists])
        return [self._view(name, "global", replace(_some(lines, at), client=who))]

    def _novel_view(self, model: Model, lines: Predictions, domains: tuple[str | None, ...]) -> View:
        assert self._novel is not None
        return count("novel", model, lines, len(self._novel.classes), domains)


def _some(lines: Predictions, at: Ints | NDArray[np.bool_]) -> Predictions:
    return Predictions(**{name: values[at] for name, values in vars(lines).items()})


def _union(lists: Sequence[Ints]) -> Ints:
    return np.unique(np.concatenate([_NONE, *lists]))
