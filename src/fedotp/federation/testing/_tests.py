"""Tests of a federation: models and the images they are tested on.

A model is "personal" (each client's own), "global" (the method's global part) or "zero-shot" (untrained captions).
Images and the views evaluated on them are

    own          the clients' own test images                  every model; the last two are controls
    all          images of the trained classes, for all        personal: base, neighbours; global: global
    novel        images of the novel classes, with their names personal and global: novel
    attacked     the clients' own images with the patch        personal: attack success

The global model is tested once on all images; each view uses its lines for the images of the view.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedotp.errors import FedotpError
from fedotp.federation._data import Backdoor, FederatedData, Images, Novel, OnImages
from fedotp.federation._sampling import Ints
from fedotp.federation._settings import Model, Settings
from fedotp.federation.testing._evaluation import Evaluation, LocalTester, Predictions
from fedotp.methods import Method, Parameters, Task, ZeroShot

PERSONAL: Model = "personal"
"""Each client's own model."""
GLOBAL: Model = "global"
"""The method's global part, with the server's message to a new client."""
ZERO_SHOT = "zero_shot"
"""Untrained captions."""
_PRIOR = "_prior"
"""Suffix of models with the prior of each client's class frequencies."""
WITH_PRIOR = PERSONAL + _PRIOR
"""Each client's own model with the prior."""
MAJORITY = "majority"
"""The most frequent class in the client's training images, for every image."""
_ALL, _NOVEL, _SUCCESS = "images of trained classes", "images of novel classes", "attack success"
_GLOBAL_ALL, _GLOBAL_NOVEL = f"global, {_ALL}", f"global, {_NOVEL}"
_BEFORE = "before joining"
_NONE = np.empty(0, np.int64)


class Federation(Protocol):
    """The tested clients."""

    def deployed(self, clients: Ints, *, model: str = PERSONAL) -> Iterator[tuple[Ints, Parameters]]:
        """Yield, in groups that fit into memory, the parameters (C, ...) with which `clients` predict under `model`."""

    def predict_with(
        self, clients: Ints, params: Parameters, on_images: OnImages | None = None, *, test: str = ""
    ) -> Predictions:
        """Predict the images of a `test` for `clients` (C,) with `params` (C, ...)."""

    def predict_new(self, clients: Ints) -> Predictions:
        """Predict the test images of new clients before any training."""


@dataclass(frozen=True, eq=False)
class View:
    """Evaluation of a view: number of candidate `classes`, number of different `images`."""

    view: str
    model: Model
    classes: int
    images: int
    evaluation: Evaluation

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        description = {"view": self.view, "model": self.model, "classes": self.classes, "images": self.images}
        return {**description, **self.evaluation.as_dict()}


class ModelTests:
    """The tests of a federation: `testers` by name, except the clients' own test with the personal model."""

    def __init__(
        self,
        method: Method,
        task: Task,
        data: FederatedData,
        settings: Settings,
        *,
        held_out: Ints,
        trained: Ints,
        novel: Novel | None = None,
        backdoor: Backdoor | None = None,
    ) -> None:
        """Prepare the tests; only `trained` clients are tested on others' images, except those of `held_out` ones."""
        self._asked = frozenset(settings.evaluation.views)
        self._held_out, self._trained = held_out, trained
        self._method, self._data, self._task, self._settings = method, data, task, settings
        if "novel" in self._asked and novel is None:
            raise FedotpError('evaluation.views contains "novel": data.classes must be "base"')
        self._novel = novel if "novel" in self._asked else None
        self.models: dict[str, Method | None] = {
            PERSONAL: method,
            GLOBAL: method.global_part,
            ZERO_SHOT: None if method == ZeroShot() else ZeroShot(),
        }
        self._rows = self._images_of_all()
        self.missing = self._find_missing()
        self.controls = self._controls()
        names = self.controls if settings.evaluation.prior else [*self.controls, WITH_PRIOR]
        self.testers = {name: self._tester(name, data) for name in names}
        if self._asked & {"base", "neighbours"}:
            lists = [self._rows] * len(data)
            if "base" not in self._asked:
                lists = [self._rows[lacks] for lacks in self._lacks(np.arange(len(data)))]
            self.testers[_ALL] = self._tester(PERSONAL, self._shown(data.test, lists))
        if self._can_see_novel(PERSONAL):
            self.testers[_NOVEL] = self._novel_tester(PERSONAL, len(data))
        if backdoor is not None:
            patched = tuple(rows[np.isin(rows, backdoor.rows)] for rows in data.test.clients)
            attacked = Images(backdoor.test, backdoor.target, patched)  # labelled as the target
            self.testers[_SUCCESS] = self._tester(PERSONAL, replace(data, test=attacked))
        if self._sees_global:
            theirs = [data.test.clients[i] for i in held_out] if "holdout" in self._asked else []
            rows = np.union1d(self._rows, _union(theirs))
            self.testers[_GLOBAL_ALL] = self._tester(GLOBAL, self._shown(data.test, [rows]))
            if self._can_see_novel(GLOBAL):
                self.testers[_GLOBAL_NOVEL] = self._novel_tester(GLOBAL, 1)

    @property
    def _sees_global(self) -> bool:
        return "global" in self._asked and self.models[GLOBAL] is not None

    def _controls(self) -> list[str]:
        """Return the models tested as controls on the clients' own images: those that differ from the personal one."""
        is_personal = bool(self._method.private(self._task)) or self._method.finetune_epochs != 0
        possible = [ZERO_SHOT, GLOBAL] if is_personal else [ZERO_SHOT]
        models = [name for name in possible if self.models[name] is not None]
        return models + [name + _PRIOR for name in models]

    def _tester(self, model: str, data: FederatedData, task: Task | None = None) -> LocalTester:
        method, settings = self.models[model.removesuffix(_PRIOR)], self._settings
        assert method is not None
        if model != PERSONAL or task is not None:  # factor 1 for models with the prior, 0 for others and novel classes
            prior = 1.0 if model.endswith(_PRIOR) else 0.0
            settings = replace(settings, evaluation=replace(settings.evaluation, prior=prior))
        return LocalTester(method, task or self._task, data, settings)

    def _novel_tester(self, model: str, n_clients: int) -> LocalTester:
        assert self._novel is not None
        everything = np.arange(len(self._novel.labels))
        images = Images(self._novel.features, self._novel.labels, ())
        task = replace(self._task, classes=self._novel.classes)
        return self._tester(model, self._shown(images, [everything] * n_clients), task)

    def _bound(self, model: str) -> str:
        """Return the reason why a model cannot predict other classes; "" if it can."""
        method = self.models[model]
        assert method is not None
        return self._task.bound_to_classes or method.bound_to_classes

    def _can_see_novel(self, model: str) -> bool:
        return self._novel is not None and not self._bound(model)

    def _find_missing(self) -> list[dict[str, str]]:
        """Return the views that cannot be evaluated, with the reasons."""
        missing = []
        if "novel" in self._asked and (bound := self._bound(PERSONAL)):
            missing.append({"view": "novel", "model": PERSONAL, "why": bound})
        if "global" in self._asked and self.models[GLOBAL] is None:
            why = f"{self._method.title} has no global part: the server's parameters alone cannot predict"
            missing.append({"view": "global", "model": GLOBAL, "why": why})
        if "neighbours" in self._asked and not self._lacks(self._trained).any():
            why = "every client has training images of every class"
            missing.append({"view": "neighbours", "model": PERSONAL, "why": why})
        if "holdout" in self._asked and not self._data.test.sizes(self._held_out).any():
            missing.append({"view": _BEFORE, "model": PERSONAL, "why": "no held-out client has a test image"})
        return missing

    # Images ------------------------------------------------------------------------------------------------

    def _images_of_all(self) -> Ints:
        """Return the test set without images that belong only to clients that did not train."""
        test, trained = self._data.test, self._trained
        away = _union([test.clients[i] for i in np.setdiff1d(np.arange(len(self._data)), trained)])
        away = np.union1d(np.setdiff1d(away, _union([test.clients[i] for i in trained])), self._data.withheld)
        return np.setdiff1d(np.arange(len(test.labels)), away)

    def _lacks(self, clients: Ints) -> NDArray[np.bool_]:
        """Return a mask (C, n) of common test images whose class each of `clients` (C,) has no training image of."""
        train, labels = self._data.train, self._data.test.labels[self._rows]
        return np.stack([~np.isin(labels, train.labels[train.clients[i]]) for i in clients])

    def _shown(self, images: Images, lists: Sequence[Ints]) -> FederatedData:
        """Return a federation in which each client, or one for all, has the test images of its list."""
        data = replace(self._data, test=replace(images, clients=tuple(lists)))
        if len(lists) == len(self._data):
            return data
        return replace(data, names=("all",), domains=(None,), train=replace(data.train, clients=(_NONE,)))

    # Results -----------------------------------------------------------------------------------------------

    def control_evaluations(self, federation: Federation, clients: Ints) -> dict[str, Evaluation]:
        """Evaluate the controls, and the method with the prior, on the test images of `clients` (C,)."""
        found = {MAJORITY: _majority(self._data, clients)}
        for model in (name for name in (*self.controls, WITH_PRIOR) if name in self.testers):
            parts = [
                federation.predict_with(group, params, test=model)
                for group, params in federation.deployed(clients, model=model.removesuffix(_PRIOR))
            ]
            found[model] = Predictions.join(parts)
        n_classes, domains = len(self._task.classes), self._data.domains
        return {model: Evaluation.of(lines, n_classes, domains) for model, lines in found.items()}

    def judge(self, federation: Federation, clients: Ints, images: Images) -> dict[str, Predictions]:
        """Return the predictions of each model for the `images` of `clients` (C,), by client and row."""
        data = replace(self._data, test=images)
        models = {**self.models, ZERO_SHOT: ZeroShot()}
        found = {}
        for model, method in models.items():
            if method is not None:
                tester = LocalTester(method, self._task, data, self._settings)
                parts = [tester.predict(*each) for each in federation.deployed(clients, model=model)]
                found[model] = Predictions.join(parts).in_order()
        return found

    def see(self, federation: Federation, clients: Ints) -> list[View]:
        """Evaluate all views of `clients` (C,) except their own tests; held-out clients have not joined yet."""
        parts: dict[str, list[Predictions]] = {}
        if personal := [test for test in (_ALL, _NOVEL, _SUCCESS) if test in self.testers]:
            for group, params in federation.deployed(clients):
                for test in personal:
                    parts.setdefault(test, []).append(federation.predict_with(group, params, test=test))
        if self._sees_global:
            ((one, params),) = federation.deployed(np.zeros(1, np.int64), model=GLOBAL)
            for test in [test for test in (_GLOBAL_ALL, _GLOBAL_NOVEL) if test in self.testers]:
                parts[test] = [federation.predict_with(one, params, test=test)]
        views = self._seen({test: Predictions.join(some) for test, some in parts.items()}, clients)
        if "holdout" in self._asked and len(self._held_out):
            lines = federation.predict_new(self._held_out)
            views += [self._view(_BEFORE, PERSONAL, lines)] if len(lines.row) else []
        return views

    def _seen(self, lines: dict[str, Predictions], clients: Ints) -> list[View]:
        """Return the views of the predictions in each test."""
        views = []
        if _ALL in lines:
            views += self._of_all(lines[_ALL])
        if _NOVEL in lines:
            views.append(self._view("novel", PERSONAL, lines[_NOVEL]))
        if _SUCCESS in lines and len(lines[_SUCCESS].row):
            views.append(self._view(_SUCCESS, PERSONAL, lines[_SUCCESS]))
        if _GLOBAL_ALL in lines:
            views += self._of_global(lines[_GLOBAL_ALL], clients)
        if _GLOBAL_NOVEL in lines:
            views.append(self._view("novel", GLOBAL, lines[_GLOBAL_NOVEL]))
        return views

    def _view(self, name: str, model: Model, lines: Predictions) -> View:
        """Evaluate the predictions of a view."""
        n_classes = len(self._novel.classes if name == "novel" and self._novel else self._task.classes)
        one_for_all = model == GLOBAL and name in ("global", "novel")
        evaluation = Evaluation.of(lines, n_classes, (None,) if one_for_all else self._data.domains)
        return View(name, model, n_classes, len(np.unique(lines.row)), evaluation)

    def _of_all(self, lines: Predictions) -> list[View]:
        views = [self._view("base", PERSONAL, lines)] if "base" in self._asked else []
        if "neighbours" in self._asked:
            has = np.zeros((len(self._data), len(self._task.classes)), bool)
            for client, rows in enumerate(self._data.train.clients):
                has[client, self._data.train.labels[rows]] = True
            others = lines.at(~has[lines.client, lines.label])
            views += [self._view("neighbours", PERSONAL, others)] if len(others.row) else []
        return views

    def _of_global(self, lines: Predictions, clients: Ints) -> list[View]:
        """Evaluate the global model on all images, and on those of each view."""
        order = np.argsort(lines.row)
        of_all = lines.at(np.isin(lines.row, self._rows))
        test = self._data.test.clients
        lists: dict[str, list[Ints]] = {PERSONAL: [test[i] for i in clients]}
        if "neighbours" in self._asked:
            lists["neighbours"] = [self._rows[lacks] for lacks in self._lacks(clients)]
        views = [self._view("global", GLOBAL, of_all)]
        for name, rows in lists.items():
            views += self._assigned(name, lines, order, clients, rows)
        if "holdout" in self._asked:
            views += self._assigned(_BEFORE, lines, order, self._held_out, [test[i] for i in self._held_out])
        return views

    def _assigned(self, name: str, lines: Predictions, order: Ints, clients: Ints, lists: Sequence[Ints]) -> list[View]:
        """Evaluate the global model's lines as those of `clients` (C,), each with the images of its list."""
        rows = np.concatenate([*lists, _NONE])
        if not len(rows):
            return []
        at = order[np.searchsorted(lines.row, rows, sorter=order)]
        who = np.repeat(clients, [len(own) for own in lists])
        return [self._view(name, GLOBAL, replace(lines.at(at), client=who))]


def _majority(data: FederatedData, clients: Ints) -> Predictions:
    """Predict the client's most frequent training class, the first in a tie, for all its test images."""
    most = [np.bincount(data.train.labels[data.train.clients[i]], minlength=1).argmax() for i in clients]
    rows = [data.test.clients[i] for i in clients]
    who, predicted = (np.repeat(values, [len(own) for own in rows]) for values in (clients, np.array(most)))
    row = np.concatenate([_NONE, *rows])
    return Predictions(who, row, data.test.labels[row], predicted, np.full(len(row), np.nan))


def _union(lists: Sequence[Ints]) -> Ints:
    return np.unique(np.concatenate([_NONE, *lists]))
