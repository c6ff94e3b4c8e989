"""Views of whole runs: base to novel from files to the summary, resumed, side by side, again later."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from toy_run import Stops, assert_same_outcome, make_config, make_inputs, outcome

import fedotp
from fedotp._text import percent
from fedotp.cli import app
from fedotp.cli.show import print_views
from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory
from fedotp.runs.directory._rounds import base_to_novel, harmonic_mean
from fedotp.runs.one import prepare, see_run

COLOURS = {
    "azure": (30, 120, 220),
    "beige": (220, 210, 180),
    "coral": (240, 120, 90),
    "denim": (30, 60, 120),
    "ebony": (40, 40, 40),
}
ALL_VIEWS = ["personal", "global", "base", "novel", "neighbours", "holdout"]


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backbone and 5 classes x 2 domains x 4 images: 3 base classes, 2 novel ones."""
    return make_inputs(tmp_path_factory.mktemp("base-to-novel"), COLOURS, 4)


def viewed(inputs: Path, **sections: Any) -> fedotp.Config:
    evaluation = {"views": ALL_VIEWS, "views_every": 1, "clients": 0, **sections.pop("evaluation", {})}
    data = {"classes": "base", **sections.pop("data", {})}
    partition = {"n_clients": 4, **sections.pop("partition", {})}
    return make_config(inputs, evaluation=evaluation, data=data, partition=partition, **sections)


@pytest.fixture(scope="session")
def done(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return fedotp.run(viewed(inputs), tmp_path_factory.mktemp("runs") / "done")


def test_clients_have_base_classes_only(done: RunDirectory) -> None:
    assert done.manifest["data"]["classes"] == ["azure", "beige", "coral"]
    assert done.manifest["novel"]["classes"] == ["denim", "ebony"]
    prepared = prepare(done.config, like=done)
    assert prepared.novel is not None
    assert prepared.task.classes == ("azure", "beige", "coral")
    assert np.bincount(prepared.novel.labels).tolist() == [done.manifest["novel"]["test_images"] // 2] * 2


def test_last_best_and_mean_of_five_are_those_of_the_metrics(inputs: Path, tmp_path: Path) -> None:
    config = viewed(inputs, federation={"rounds": 6}, evaluation={"views": ["base", "novel"]})
    run = fedotp.run(config, tmp_path / "run")
    own = {record["round"]: record["accuracy"] for record in run.metrics("evaluation")}
    assert list(own) == [0, 1, 2, 3, 4, 5, 6]
    series = {
        name: {r["round"]: r["accuracy"] for r in run.metrics("view") if r["view"] == name}
        for name in ("base", "novel")
    }
    table = np.array([[own[r], series["base"][r], series["novel"][r]] for r in own])
    hm = scipy.stats.hmean(table[:, 1:], axis=1)
    expected = {
        **dict(zip(("local", "base", "novel"), table.T, strict=True)),
        "hm": hm,
        "hm3": scipy.stats.hmean(table, axis=1),
        "cm": (table[:, 0] + hm) / 2,
    }
    found = run.summary["base_to_novel"]["personal"]
    for name, values in expected.items():
        assert found[name]["last"] == pytest.approx(values[-1])
        assert found[name]["best"] == pytest.approx(values.max())
        assert values[found[name]["best_round"]] == pytest.approx(values.max())
        assert found[name]["last_five"] == pytest.approx(values[-5:].mean())
        assert found[name]["evaluations"] == 7
    assert run.summary["last_five"] == {"accuracy": pytest.approx(table[-5:, 0].mean()), "evaluations": 5}
    assert "global" not in run.summary["base_to_novel"]


@given(st.lists(st.just(0.0) | st.floats(1e-6, 1), min_size=1, max_size=4))
def test_the_harmonic_mean_is_scipys(values: list[float]) -> None:
    assert harmonic_mean(values) == pytest.approx(scipy.stats.hmean(values), abs=1e-12)


def test_last_five_are_rounds_not_evaluations() -> None:
    every_ten = {0: 0.1, 10: 0.2, 20: 0.3, 30: 0.4}
    assert base_to_novel(every_ten, every_ten, every_ten)["base"]["last_five"] == 0.4
    every_two = {round_: round_ / 100 for round_ in range(0, 31, 2)}
    assert base_to_novel(every_two, every_two, every_two)["base"]["last_five"] == pytest.approx(0.28)  # 26, 28, 30
    few = base_to_novel({0: 0.9, 2: 0.8}, {0: 0.5, 2: 0.6}, {0: 0.25, 2: 0.3, 3: 1.0})
    assert few["hm"]["last_five"] == pytest.approx(0.4)  # an evaluation before the first round does not count
    assert (few["hm"]["best_round"], few["local"]["best_round"]) == (2, 0)


@pytest.mark.parametrize(
    ("every", "views_every", "expected"), [(1, 0, [5]), (1, 2, [0, 2, 4, 5]), (2, 2, [0, 4, 5]), (0, 1, [5])]
)
def test_views_are_seen_with_every_so_many_evaluations(
    inputs: Path, tmp_path: Path, every: int, views_every: int, expected: list[int]
) -> None:
    evaluation = {"views": ["novel"], "every": every, "views_every": views_every}
    run = fedotp.run(viewed(inputs, federation={"rounds": 5}, evaluation=evaluation), tmp_path / "run")
    assert [record["round"] for record in run.metrics("view")] == expected


def test_a_resumed_run_sees_the_same(inputs: Path, done: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fedotp.run(done.config, tmp_path / "run", observer=Stops(2))
    assert_same_outcome(outcome(fedotp.resume(tmp_path / "run")), outcome(done))


def test_a_finished_run_is_seen_again(done: RunDirectory) -> None:
    """All that can be seen without letting clients join."""
    evaluation, views, found = see_run(done.path, ALL_VIEWS)
    recorded = {(view["view"], view["model"]): view for view in done.summary["views"]}
    assert evaluation.mean == done.summary["final"]["accuracy"]
    elsewhere = {("after joining", "personal"), ("personal", "personal")}
    assert {(view.view, view.model) for view in views} == recorded.keys() - elsewhere
    for view in views:
        assert view.evaluation.mean == recorded[view.view, view.model]["accuracy"]
    personal = done.summary["base_to_novel"]["personal"]
    assert found["base_to_novel"]["personal"]["cm"]["last"] == personal["cm"]["last"]
    assert found["base_to_novel"]["personal"]["cm"]["evaluations"] == 1
    assert found["missing_views"] == []


def test_the_command_line_prints_views(done: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app(["runs", "show", str(done.path)])
    novel = next(view for view in done.summary["views"] if view["view"] == "novel")
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("novel"))
    assert line.split() == [
        *("novel", "personal", "2", str(novel["images"]), "3", percent(novel["last"])),
        *(percent(novel["best"]), str(novel["best_round"]), percent(novel["last_five"])),
    ]


def test_a_view_that_cannot_be_says_why(inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = viewed(inputs, method={"name": "ridge"}, federation={"rounds": 1})
    run = fedotp.run(config, tmp_path / "run")
    assert [missing["view"] for missing in run.summary["missing_views"]] == ["novel"]
    assert not any(view["view"] == "novel" and view["model"] == "personal" for view in run.summary["views"])
    print_views(run.summary)
    assert "no novel view: its weights are those of the trained classes" in capsys.readouterr().out


def test_views_need_what_they_show(inputs: Path) -> None:
    with pytest.raises(FedotpError, match=r'evaluation.views .*without "novel", which needs data.classes = "base"'):
        viewed(inputs, data={"classes": "all"})
    with pytest.raises(FedotpError, match=r'evaluation.views .*without "holdout", which needs federation.holdout'):
        viewed(inputs, federation={"holdout_clients": 0})
    with pytest.raises(FedotpError, match="base and novel classes need at least 4 classes, got 3"):
        fedotp.data.load_dataset(inputs / "data").base_and_novel()[0].base_and_novel()
