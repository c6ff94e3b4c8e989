"""What each client contributed, on runs in a blink: who teaches wrong labels is worth least."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_run import COLOURS, make_config

import fedotp
from coloured_squares import draw_squares
from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory, find_runs
from fedotp.runs.leaving import measure_plan, plan_value
from fedotp.runs.many import run_many
from fedotp.runs.one import restore, see_run

SITES = ("east", "north", "south", "west")
LIAR = "south"


@pytest.fixture(scope="module")
def whole(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Four sites with slightly different light; one of them has every training image under the next class's name."""
    folder = tmp_path_factory.mktemp("sites")
    for number, site in enumerate(SITES):
        light = {name: tuple(min(255, value + 12 * number) for value in rgb) for name, rgb in COLOURS.items()}
        moved = dict(zip(light, [*list(light.values())[1:], next(iter(light.values()))], strict=True))
        draw_squares(folder / "data" / site / "train", moved if site == LIAR else light, 4)
        draw_squares(folder / "data" / site / "test", light, 3)
    config = make_config(
        inputs,
        data={"dataset": str(folder / "data"), "store": str(folder / "store")},
        federation={"rounds": 3, "local_epochs": 1, "participation": 1.0, "holdout_clients": 0},
        optimizer={"lr": 0.5},
    ).override(["partition.scheme=domain"])
    return fedotp.run(config, folder / "run")


@pytest.fixture(scope="module")
def result(whole: RunDirectory) -> dict[str, Any]:
    plan = plan_value(whole.path)
    assert not any(outcome.error for outcome in run_many(plan.trials, plan.run.path / "value"))
    return measure_plan(plan)


def test_who_teaches_wrong_labels_is_worth_least(whole: RunDirectory, result: dict[str, Any]) -> None:
    """And the values are those of all 24 orders, one by one, of the numbers that were written down."""
    value = {site["name"]: site["shapley"] for site in result["sites"]}
    assert value[LIAR] < -0.1
    assert all(value[site] > 0.1 for site in SITES if site != LIAR)
    worth = {frozenset(each["sites"]): each["value"] for each in result["coalitions"]}
    assert len(worth) == 16
    added: dict[str, list[float]] = {site: [] for site in SITES}
    for order in itertools.permutations(SITES):
        for place, site in enumerate(order):
            added[site].append(worth[frozenset(order[: place + 1])] - worth[frozenset(order[:place])])
    for site in SITES:
        assert value[site] == pytest.approx(np.mean(added[site]), abs=1e-12)
    of_all, of_none = worth[frozenset(SITES)], worth[frozenset()]
    assert (result["all"], result["none"]) == (of_all, of_none)
    assert sum(value.values()) == pytest.approx(of_all - of_none, abs=1e-12)
    for site in result["sites"]:
        assert site["leave_one_out"] == of_all - worth[frozenset(SITES) - {site["name"]}]
    assert whole.finding("value") == result


def test_a_coalition_is_worth_what_its_own_run_is(whole: RunDirectory, result: dict[str, Any], tmp_path: Path) -> None:
    """Made from the configuration alone, and looked at as `fedotp evaluate --views global` does."""

    def shared_accuracy(path: Path, *changes: str) -> float:
        views = see_run(path, ["global"], changes)[1]
        (found,) = [view for view in views if (view.view, view.model) == ("personal", "global")]
        assert len(found.evaluation.clients) == 4
        return found.evaluation.mean

    worth = {frozenset(each["sites"]): each["value"] for each in result["coalitions"]}
    assert worth[frozenset(SITES)] == shared_accuracy(whole.path)
    pair = fedotp.run(whole.config.override(["federation.without=east,south"]), tmp_path / "pair")
    assert worth[frozenset(("north", "west"))] == shared_accuracy(pair.path, "federation.without=[]")
    untrained = fedotp.run(whole.config.override(["federation.rounds=0"]), tmp_path / "untrained")
    assert worth[frozenset()] == shared_accuracy(untrained.path)


def test_runs_are_made_once_and_belong_to_theirs(whole: RunDirectory, result: dict[str, Any]) -> None:
    folders = {path.parent: path.stat().st_mtime_ns for path in whole.path.glob("value/*/summary.json")}
    assert len(folders) == 14
    plan = plan_value(whole.path, permutations=3)
    assert {trial.name for trial in plan.trials} <= {folder.name for folder in folders}
    run_many(plan.trials, plan.run.path / "value")
    found = measure_plan(plan)
    assert {path.parent: path.stat().st_mtime_ns for path in whole.path.glob("value/*/summary.json")} == folders
    assert (found["exact"], found["permutations"]) == (False, 3)
    for site in found["sites"]:
        assert site["low"] <= site["shapley"] <= site["high"]
    assert [run.path for run in find_runs(whole.path.parent)] == [whole.path]


def test_worth_may_be_what_each_site_has_of_it(whole: RunDirectory, result: dict[str, Any]) -> None:
    """Members predict with their own classifiers, everyone else with what a newcomer is sent."""
    found = measure_plan(plan_value(whole.path, of="personal"))
    worth = {frozenset(each["sites"]): each["value"] for each in found["coalitions"]}
    assert worth[frozenset(SITES)] == pytest.approx(whole.summary["final"]["accuracy"], abs=1e-12)
    _, alone = restore(whole.path / "value/with=east", ["federation.without=[]"])
    east, others = np.zeros(1, np.int64), np.arange(1, 4)
    lines = [alone.predict(east), alone.predict_new(others)]
    shares = [
        np.mean((part.label == part.predicted)[part.client == i]) for part in lines for i in np.unique(part.client)
    ]
    assert len(shares) == 4
    assert worth[frozenset({"east"})] == pytest.approx(np.mean(shares), abs=1e-12)


def test_who_is_held_out_or_absent_does_not_play(inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, federation={"rounds": 1, "without": ["client-2"]})
    plan = plan_value(fedotp.run(config, tmp_path / "run").path, permutations=1)
    (joined,) = [client["name"] for client in plan.run.summary["joined"]["clients"]]
    assert {*plan.names} == {f"client-{i}" for i in range(5)} - {"client-2", joined}
    for trial in plan.trials:
        assert {"client-2", joined} < {*trial.config.federation.without}
        assert not trial.config.federation.holdout_clients


def test_what_has_no_value_is_refused(whole: RunDirectory, tmp_path: Path) -> None:
    for options, line in (
        ({"permutations": 0}, "--permutations 0: must be 1 or more"),
        ({"permutations": 3, "all_of_them": True}, "--exact: leave out --permutations"),
        ({"of": "local"}, "--of local: must be global, personal"),
    ):
        with pytest.raises(FedotpError, match=line):
            plan_value(whole.path, **options)
    incomplete = shutil.copytree(whole.path, tmp_path / "incomplete", ignore=shutil.ignore_patterns("value*"))
    (incomplete / "summary.json").unlink()
    with pytest.raises(FedotpError, match="is not complete; resume it with"):
        plan_value(incomplete)
    alone = fedotp.run(whole.config.override(["method.name=coop", "federation.rounds=0"]), tmp_path / "coop")
    assert plan_value(alone.path).of == "personal"
    with pytest.raises(FedotpError, match=r"CoOp .* has no global part that predicts by itself; give --of personal"):
        plan_value(alone.path, of="global")
    config = whole.config.override(["federation.without=east,north,south", "federation.rounds=0"])
    one = fedotp.run(config, tmp_path / "one")
    with pytest.raises(FedotpError, match="only one client trained"):
        plan_value(one.path)
