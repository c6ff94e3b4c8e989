"""Views against a restatement: one client, one image at a time, with the method's own score and nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from toy_federation import NOVEL, make_data, make_novel, make_settings, make_task

from anchored import STRUCTURES
from fedotp.federation import FederatedData, Images, Simulator
from fedotp.federation.testing import View
from fedotp.federation.together import Together
from fedotp.federation.together._joined import Answer, Job, Joined
from fedotp.methods import METHODS, Batch, Method, Parameters, Task

EVERYTHING = ("personal", "global", "base", "novel", "neighbours", "holdout")
BASE_TO_NOVEL = EVERYTHING[:-1]


def trained(method: Method | str, views: tuple[str, ...] = BASE_TO_NOVEL, **federation: int) -> Simulator:
    settings = make_settings(evaluation={"views": views, "batch_size": 3}, rounds=1, local_epochs=1, **federation)
    method = METHODS[method]() if isinstance(method, str) else method
    one = Simulator(method, make_task(), make_data(), settings, novel=make_novel() if "novel" in views else None)
    one.run_round()
    return one


def by_key(views: list[View]) -> dict[tuple[str, str], View]:
    found = {(view.view, view.model): view for view in views}
    assert len(found) == len(views)
    return found


def assert_same(one: View, other: View) -> None:
    assert {**vars(one), "evaluation": None} == {**vars(other), "evaluation": None}
    assert one.evaluation.clients.tolist() == other.evaluation.clients.tolist()
    for key, values in one.evaluation.values.items():
        assert values == pytest.approx(other.evaluation.values[key])


@torch.no_grad()
def right(
    method: Method, task: Task, data: FederatedData, params: Parameters, images: Images, client: int
) -> list[bool]:
    """Whether each of `images` is classified right, one by one, by the client whose parameters (1, ...) these are."""
    classes = F.normalize(method.class_features(task, params | method.derived(task, params, None)), dim=-1)
    memory = data.memory(np.array([client]), task.device, task.dtype) if method.uses_memory else None
    found = []
    for row, label in enumerate(images.labels):
        image, labels = images.read(np.array([[row]]), 0, task.device, task.dtype)
        scores = method.score(task, params, Batch(image, torch.full_like(labels, -1), memory=memory), classes)
        found.append(int(scores[0, 0].argmax()) == label)
    return found


def of_all(one: Simulator, task: Task, images: Images) -> dict[int, NDArray[np.bool_]]:
    rows = {}
    for client in range(len(one.data)):
        ((_, params),) = one.deployed(np.array([client]))
        rows[client] = np.array(right(one.method, task, one.data, params, images, client))
    return rows


@pytest.mark.parametrize("name", STRUCTURES)
def test_views_are_what_one_client_at_a_time_sees(name: str) -> None:
    one = trained(name)
    data, novel = one.data, make_novel()
    views = by_key(one.see())
    base = of_all(one, one.task, data.test)
    other = of_all(one, replace(one.task, classes=NOVEL), Images(novel.features, novel.labels, ()))
    assert views["base", "personal"].evaluation.accuracy == pytest.approx([rows.mean() for rows in base.values()])
    assert views["novel", "personal"].evaluation.accuracy == pytest.approx([rows.mean() for rows in other.values()])
    lacking = {c: ~np.isin(data.test.labels, data.train.labels[data.train.clients[c]]) for c in base}
    expected = {c: rows[lacking[c]].mean() for c, rows in base.items() if lacking[c].any()}
    neighbours = views["neighbours", "personal"].evaluation
    assert dict(zip(neighbours.clients, neighbours.accuracy, strict=True)) == pytest.approx(expected)
    if (part := one.method.global_part) is None:
        assert one.tests.missing == [
            {
                "view": "global",
                "model": "global",
                "why": f"{one.method.title} has no global part: the server's parameters alone cannot predict",
            }
        ]
        assert not any(model == "global" for _, model in views)
        return
    params = part.deployed(one.method.send(one.server.params, None, 1), {})
    whole = np.array(right(part, one.task, data, params, data.test, 0))
    names = replace(one.task, classes=NOVEL)
    others = right(part, names, data, params, Images(novel.features, novel.labels, ()), 0)
    assert views["global", "global"].evaluation.accuracy == pytest.approx([whole.mean()])
    assert views["novel", "global"].evaluation.accuracy == pytest.approx([np.mean(others)])
    own = views["personal", "global"].evaluation.accuracy
    assert own == pytest.approx([whole[rows].mean() for rows in data.test.clients])
    theirs = views["neighbours", "global"].evaluation.accuracy
    assert theirs == pytest.approx([whole[lacks].mean() for lacks in lacking.values() if lacks.any()])
    assert not one.tests.missing


def test_a_view_says_what_it_is_of() -> None:
    one = trained("fedotp")
    views = by_key(one.see())
    n = len(one.data.test.labels)
    assert {key: (view.classes, view.images, len(view.evaluation.clients)) for key, view in views.items()} == {
        ("base", "personal"): (3, n, 5),
        ("neighbours", "personal"): (3, n, 5),
        ("novel", "personal"): (2, 7, 5),
        ("global", "global"): (3, n, 1),
        ("personal", "global"): (3, n, 5),
        ("neighbours", "global"): (3, n, 5),
        ("novel", "global"): (2, 7, 1),
    }
    assert views["base", "personal"].as_dict()["view"] == "base"
    assert (views["base", "personal"].evaluation.n == n).all()


def test_views_do_not_move_the_clients_own_tests() -> None:
    with_views, without = trained("fedotp"), trained("fedotp", ("personal",))
    assert without.see() == []
    assert with_views.see()
    one, other = vars(with_views.predict()), vars(without.predict())
    assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.parametrize("name", STRUCTURES[1:])
def test_held_out_clients_are_seen_before_they_join(name: str) -> None:
    one = trained(name, EVERYTHING, holdout_clients=2)
    views = by_key(one.see())
    away = one.held_out
    before = views["before joining", "personal"].evaluation
    assert before.clients.tolist() == away.tolist()
    for place, client in enumerate(away):
        params = one.parameters(np.array([client]), new=True)
        rows = one.data.test.clients[client]
        found = np.array(right(one.method, one.task, one.data, params, one.data.test, client))[rows]
        assert before.accuracy[place] == pytest.approx(found.mean())
    if one.method.global_part is not None:
        assert views["before joining", "global"].evaluation.clients.tolist() == away.tolist()
    theirs = set(np.concatenate([one.data.test.clients[client] for client in away]))
    assert views["base", "personal"].images == len(one.data.test.labels) - len(theirs)
    assert not set(away) & set(views["base", "personal"].evaluation.clients)


def test_prompts_of_every_class_have_no_novel_view() -> None:
    settings = make_settings(evaluation={"views": BASE_TO_NOVEL})
    one = Simulator(METHODS["promptfl"](), make_task(per_class=True), make_data(), settings, novel=make_novel())
    assert not any(view.view == "novel" for view in one.see())
    assert [missing["view"] for missing in one.tests.missing] == ["novel"]
    assert "separate vectors for each" in one.tests.missing[0]["why"]


def test_clients_that_have_all_classes_have_no_neighbours() -> None:
    data = make_data()
    everything = np.arange(len(data.train.labels))
    data = replace(data, train=replace(data.train, clients=(everything,) * len(data)))
    one = Simulator(
        METHODS["fedotp"](), make_task(), data, make_settings(evaluation={"views": ("neighbours", "global")})
    )
    assert [(view.view, view.model) for view in one.see()] == [("global", "global"), ("personal", "global")]
    assert one.tests.missing == [
        {"view": "neighbours", "model": "personal", "why": "every client has training images of every class"}
    ]


def test_groups_of_clients_see_what_all_at_once_see() -> None:
    at_once = trained("fedotp")
    in_pairs = trained("fedotp")
    in_pairs.group_size = 2
    for one, other in zip(at_once.see(), in_pairs.see(), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("name", STRUCTURES)
def test_federations_side_by_side_see_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, novel, task = make_data(), make_novel(), make_task(torch.float64)
    joined: list[str] = []
    do = Joined.do

    def watched(self: Joined, jobs: Sequence[Job]) -> Sequence[Answer]:
        joined.append(jobs[0].test)
        return do(self, jobs)

    monkeypatch.setattr(Joined, "do", watched)

    def federations() -> list[Simulator]:
        parts = {"evaluation": {"views": EVERYTHING, "batch_size": 3}, "compute": {"precision": "float64"}}
        rounds = {"rounds": 1, "local_epochs": 1, "holdout_clients": 1}
        several = [make_settings(**parts, **rounds, seed=seed) for seed in (0, 1)]
        return [Simulator(METHODS[name](), task, data, settings, novel=novel) for settings in several]

    def work(one: Simulator, views: list[View]) -> None:
        one.run_round()
        views += one.see()

    found: list[list[View]] = [[], []]
    works = [(one, partial(work, one, views)) for one, views in zip(federations(), found, strict=True)]
    assert [error for _, error in Together().go(works)] == [None, None]
    assert {"images of trained classes", "images of novel classes"} <= {*joined}
    for one, views in zip(federations(), found, strict=True):
        one.run_round()
        for alone, beside in zip(one.see(), views, strict=True):
            assert_same(alone, beside)
