"""TensorBoard, W&B and MLflow, as the packages themselves read back what they were given. `make test-extras`."""

import importlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory, rounds_of
from fedotp.runs.one import resume, run
from fedotp.runs.watch import MLflow, Observers, TensorBoard, WandB
from runs.toy_run import Stops, make_config, make_inputs

pytestmark = pytest.mark.filterwarnings("default")  # what the packages complain of is not ours
WHY = "it is not installed here; `make test-extras` has it"


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # so that what the tracker sets is taken back
    return make_inputs(tmp_path)


def stopped(inputs: Path, make_tracker: Any) -> Path:
    """A run that an error ended in its second round."""
    path = inputs / "runs" / "one"
    with pytest.raises(ArithmeticError):
        run(make_config(inputs), path, observer=Observers(make_tracker(), Stops(2, ArithmeticError)))
    return path


def stopped_and_resumed(inputs: Path, make_tracker: Any) -> RunDirectory:
    """The same, gone on."""
    return resume(stopped(inputs, make_tracker), observer=make_tracker())


def expected(done: RunDirectory) -> list[Any]:
    """Accuracies on test images and training losses by round."""
    rows = {row["round"]: row for row in rounds_of(done)}
    losses = {n: row["train_loss"] for n, row in rows.items() if n}
    return [pytest.approx({n: row["accuracy"] for n, row in rows.items()}), pytest.approx(losses)]


KEYS = ("test/accuracy", "train/loss")


def test_tensorboard(inputs: Path) -> None:
    pytest.importorskip("tensorboard", reason=WHY)
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=WHY)
    done = stopped_and_resumed(inputs, TensorBoard)
    read = accumulator.EventAccumulator(str(done.path / "tensorboard"))
    read.Reload()
    assert [{event.step: event.value for event in read.Scalars(key)} for key in KEYS] == expected(done)


def test_wandb_offline(inputs: Path) -> None:
    wandb = pytest.importorskip("wandb", reason=WHY)
    done = stopped_and_resumed(inputs, WandB)
    wandb.teardown()  # as at the end of a process: until then, its helper may be writing
    files = sorted((done.path / "wandb").glob("offline-run-*/*.wandb"))
    assert files
    history: dict[str, dict[int, float]] = {}
    identities, settings, final, ends = set(), {}, {}, []
    for file in files:
        for record in _wandb_records(file):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                identities.add(record.run.run_id)
                settings |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            if kind == "history":
                logged = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                for key, value in logged.items():
                    history.setdefault(key, {})[logged["round"]] = value
            if kind == "exit":
                ends.append(record.exit.exit_code)
            if kind == "summary":
                final |= {(i.key or "/".join(i.nested_key)): json.loads(i.value_json) for i in record.summary.update}
    assert len(identities) == 1  # however often it was begun
    assert ends == [1, 0]  # an error, then a run that is complete
    assert settings["method.name"] == "fedotp"
    assert [history[key] for key in KEYS] == expected(done)
    assert final["final/accuracy"] == pytest.approx(done.summary["final"]["accuracy"])


def _wandb_records(path: Path) -> list[Any]:
    """What is in the file that `wandb sync` would send: a log as LevelDB's, of W&B's own messages."""
    messages = importlib.import_module("wandb.proto.wandb_internal_pb2")
    content, at, records, whole = path.read_bytes(), 7, [], b""
    assert content[:4] == b":W&B"
    while at + 7 <= len(content):
        left = 32768 - at % 32768  # of this block: no record's head is cut in two
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # all of it, or its last part
            record = messages.Record()
            record.ParseFromString(whole)
            records.append(record)
            whole = b""
    return records


def test_wandb_is_not_asked_for_what_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason=WHY)
    monkeypatch.setenv("WANDB_MODE", "onlin")
    with pytest.raises(FedotpError, match="WANDB_MODE = 'onlin': must be offline, online or disabled"):
        WandB()


def test_mlflow_in_files(inputs: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason=WHY)
    done = stopped_and_resumed(inputs, MLflow)
    client = mlflow.MlflowClient(tracking_uri=(inputs / "runs" / "mlruns").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("fedotp").experiment_id])  # one, however often begun
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "one"
    assert found.data.params["method.name"] == "fedotp"
    assert found.data.params["federation.rounds"] == str(done.config.federation.rounds)
    histories = [client.get_metric_history(found.info.run_id, key) for key in KEYS]
    assert [{metric.step: metric.value for metric in history} for history in histories] == expected(done)
    kept = {item.path for item in client.list_artifacts(found.info.run_id)}
    assert kept == {"config.toml", "summary.json"}


def test_mlflow_takes_an_error_and_any_name_of_a_domain(inputs: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason=WHY)
    path = stopped(inputs, MLflow)
    client = mlflow.MlflowClient(tracking_uri=(inputs / "runs" / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("fedotp").experiment_id
    (found,) = client.search_runs([experiment])
    assert found.info.status == "FAILED"
    MLflow().on_failure(inputs)  # it never began
    tracker = MLflow()
    tracker.on_start(path, RunDirectory.open(path).config, round_=1, images_per_round=1)
    tracker.log(1, {"domain/[bold]night: 50 %": 0.5})
    (found,) = client.search_runs([experiment])
    assert found.data.metrics["domain/_bold_night_ 50 _"] == 0.5
