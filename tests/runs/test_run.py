"""What a run directory holds, when clients are evaluated, when a run stops."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_run import assert_same_outcome, make_config, outcome

import fedotp
from fedotp.config import difference
from fedotp.errors import FedotpError
from fedotp.federation import Simulator
from fedotp.federation.testing import Evaluation
from fedotp.runs.directory import RunDirectory, find_runs, free_name
from fedotp.runs.many import by_method
from fedotp.runs.one import join


def rounds_of(run: RunDirectory, kind: str) -> list[int]:
    return [record["round"] for record in run.metrics(kind)]


def test_a_run_is_a_directory(inputs: Path, complete: RunDirectory) -> None:
    files = {str(path.relative_to(complete.path)) for path in complete.path.rglob("*") if path.is_file()}
    state = {"state/checkpoint.safetensors", "state/private.bin", "state/lock"}
    numbers = {"metrics.jsonl", "predictions.npz", "summary.json"}
    assert files == {"config.toml", "manifest.json", "partition.json"} | numbers | state
    again = RunDirectory.open(complete.path)
    assert again.config == make_config(inputs).resolved
    assert again.manifest["backbone"]["digest"]
    assert again.manifest["transforms"]["test"]
    assert len(again.manifest["clients"]) == 5
    assert again.is_complete
    assert [run.path for run in find_runs(complete.path.parent)] == [complete.path]
    assert free_name(again.config, complete.path.parent).parent == complete.path.parent


def test_the_summary_says_what_metrics_and_predictions_say(complete: RunDirectory) -> None:
    summary, predictions = complete.summary, complete.predictions()
    names, domains = complete.manifest["clients"], complete.manifest["domains"]
    rounds = list(complete.metrics("round"))
    assert summary["communication"] == {
        key: sum(record[key] for record in rounds) for key in ("bytes_up", "bytes_down")
    }
    assert rounds[0]["bytes_up"] == rounds[0]["bytes_down"] == 3 * 2 * 64 * 4  # clients, vectors, width, bytes
    last = list(complete.metrics("evaluation"))[-1]
    trained = [client["name"] for client in summary["clients"]]
    joined = [client["name"] for client in summary["joined"]["clients"]]
    assert sorted({names[i] for i in predictions.client}) == sorted(trained + joined)
    assert not set(trained) & set(joined)
    mine = np.isin(predictions.client, [names.index(name) for name in trained])
    part = type(predictions)(*(value[mine] for value in vars(predictions).values()))
    evaluation = Evaluation.of(part, 3, domains)
    assert summary["final"] == pytest.approx(evaluation.totals(), abs=1e-6)
    assert {key: last[key] for key in summary["final"]} == summary["final"]
    assert [client["accuracy"] for client in summary["clients"]] == pytest.approx(evaluation.accuracy)
    assert summary["best"]["accuracy"] == max(record["accuracy"] for record in complete.metrics("evaluation"))
    assert summary["rounds"] == 3
    json.loads((complete.path / "summary.json").read_text(), parse_constant=lambda x: pytest.fail(f"{x} is not JSON"))


def test_a_finished_run_is_evaluated_again_and_left_as_it_is(complete: RunDirectory) -> None:
    def files() -> dict[Path, tuple[bytes, int]]:
        paths = [path for path in sorted(complete.path.rglob("*")) if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

    before = files()
    assert fedotp.resume(complete.path).summary == complete.summary
    assert fedotp.evaluate_run(complete.path).totals() == complete.summary["final"]
    assert fedotp.evaluate_run(complete.path, ["method.mass=0.2"]).totals() != complete.summary["final"]
    for change in ("prompt.n_ctx=3", "compute.precision=float64"):
        with pytest.raises(fedotp.FedotpError, match="belongs to another federation"):
            fedotp.evaluate_run(complete.path, [change])
    assert before == files()


@pytest.mark.parametrize("who", ["predict", "join"])
def test_clients_without_test_images(who: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line if no client that trains has any; those who join may have none."""
    plain = getattr(Simulator, who)

    def without(*args: Any) -> Any:
        predictions = plain(*args)
        return type(predictions)(*(value[:0] for value in vars(predictions).values()))

    monkeypatch.setattr(Simulator, who, without)
    if who == "predict":
        with pytest.raises(fedotp.FedotpError, match="no training client has a test image"):
            fedotp.run(make_config(inputs), tmp_path / "run")
    else:
        assert fedotp.run(make_config(inputs), tmp_path / "run").summary["joined"]["clients"] == []


@pytest.mark.parametrize(("every", "expected"), [(0, [5]), (1, [0, 1, 2, 3, 4, 5]), (2, [0, 2, 4, 5]), (9, [0, 5])])
def test_clients_are_evaluated_every_k_rounds(inputs: Path, tmp_path: Path, every: int, expected: list[int]) -> None:
    config = make_config(inputs, federation={"rounds": 5}, evaluation={"every": every})
    assert rounds_of(fedotp.run(config, tmp_path / "run"), "evaluation") == expected


def test_evaluation_changes_nothing(inputs: Path, tmp_path: Path) -> None:
    often, never = (
        outcome(fedotp.run(make_config(inputs, evaluation={"every": every, "clients": 0}), tmp_path / str(every)))
        for every in (1, 0)
    )
    for name in ("server.shared", "kept.private", "predictions.loss"):
        assert often[name] == never[name]


def test_a_sample_of_the_clients_is_evaluated_and_all_at_the_end(inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, evaluation={"clients": 2}, federation={"rounds": 5, "holdout_clients": 0})
    *sampled, last = fedotp.run(config, tmp_path / "run").metrics("evaluation")
    assert [len(record["clients"]) for record in sampled] == [2] * 5
    assert len({tuple(record["clients"]) for record in sampled}) > 1
    with_test_images = np.unique(RunDirectory(tmp_path / "run").predictions().client)
    assert last["clients"] == with_test_images.tolist()


def test_no_rounds_is_an_evaluation_of_the_start(inputs: Path, tmp_path: Path) -> None:
    done = fedotp.run(make_config(inputs, federation={"rounds": 0}), tmp_path / "run")
    assert rounds_of(done, "evaluation") == [0]
    assert rounds_of(done, "round") == []
    assert done.summary["rounds"] == 0
    assert done.summary["communication"] == {"bytes_up": 0, "bytes_down": 0}
    assert fedotp.evaluate_run(done.path).mean == done.summary["final"]["accuracy"]


def script(monkeypatch: pytest.MonkeyPatch, accuracies: list[float]) -> None:
    """Let the evaluations of a run have these mean accuracies."""
    values, count = iter(accuracies), Evaluation.of

    def scripted(*args: Any) -> Evaluation:
        evaluation = count(*args)
        accuracy = np.full_like(evaluation.accuracy, next(values, 0.0))  # the controls come last
        return replace(evaluation, values={**evaluation.values, "accuracy": accuracy})

    monkeypatch.setattr(Evaluation, "of", scripted)


@pytest.mark.parametrize(
    ("accuracies", "best"),
    [  # one value per evaluation: before the first round, after each, and of everyone at the end
        ([0.125, 0.25, 0.25, 0.25], (0.25, 1)),
        ([0.125, 0.25, 0.125, 0.5], (0.5, 3)),
        ([0.5, 0.25, 0.25, 0.25], (0.5, 0)),
        ([0.0, 0.0, 0.0, 0.0], (0.0, 0)),
    ],
)
def test_the_best_evaluation_is_the_first_of_the_highest(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accuracies: list[float], best: tuple[float, int]
) -> None:
    script(monkeypatch, accuracies)
    done = fedotp.run(make_config(inputs, federation={"holdout_clients": 0}), tmp_path / "run")
    assert (done.summary["best"]["accuracy"], done.summary["best"]["round"]) == best


def test_float64_is_float64_all_the_way(inputs: Path, tmp_path: Path) -> None:
    found = {
        precision: outcome(fedotp.run(make_config(inputs, compute={"precision": precision}), tmp_path / precision))
        for precision in ("float32", "float64")
    }
    single = np.frombuffer(found["float32"]["server.shared"], np.float32)
    double = np.frombuffer(found["float64"]["server.shared"], np.float64)
    assert len(single) == len(double)
    assert 0 < np.abs(single - double).max() < 1e-3
    assert (double != double.astype(np.float32)).any()


def test_a_domain_is_left_out_by_name(inputs: Path, tmp_path: Path) -> None:
    """Its clients join at the end, and a client that comes later still joins: no setting holds it out."""
    partition = {"scheme": "domain-dirichlet", "n_clients": 4}
    federation = {"holdout_clients": 0, "holdout": ["night"], "participation": 1.0}
    config = make_config(inputs, partition=partition, federation=federation)
    run = fedotp.run(config, tmp_path / "run")
    assert {client["domain"] for client in run.summary["clients"]} == {"day"}
    assert [client["name"] for client in run.summary["joined"]["clients"]] == ["night-0", "night-1"]
    assert set(run.summary["domains"]) == {"day"}
    assert [record["sampled"] for record in run.metrics("round")] == [[0, 1]] * 3
    assert join(run.path, inputs / "data", name="late")["test_images"] > 0


def test_a_name_unknown_to_the_data_is_refused_before_anything_is_encoded(inputs: Path, tmp_path: Path) -> None:
    config = make_config(
        inputs,
        data={"store": str(tmp_path / "store")},
        partition={"scheme": "domain-dirichlet", "n_clients": 4},
        federation={"holdout_clients": 0, "holdout": ["nigth"]},
    )
    with pytest.raises(FedotpError, match='did you mean "night"'):
        fedotp.run(config, tmp_path / "run")
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "run").exists()


def test_the_method_s_own_rate_is_recorded_as_a_number(inputs: Path, tmp_path: Path) -> None:
    """config.toml alone makes the same run again, whatever a later version declares."""
    word = make_config(inputs, method={"name": "pfedmoap"}, optimizer={"lr": "mini"}, federation={"holdout_clients": 0})
    done = fedotp.run(word, tmp_path / "word")
    assert "\nlr = 0.003\n" in (done.path / "config.toml").read_text()
    assert done.manifest["config"]["optimizer"] == vars(word.resolved.optimizer)
    assert done.summary["optimizer"] == {"name": "sgd", "lr": 0.003}
    assert {record["lr"] for record in done.metrics("round")} == {0.003}
    again = fedotp.run(fedotp.load_config(done.path / "config.toml"), tmp_path / "again")
    assert_same_outcome(outcome(again), outcome(done))
    (trial,) = by_method(word, ["pfedmoap"], [word.seed])
    assert not difference(trial.config, done.config)
