"""Runs as the authors' code does them: what is written down, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_run import make_config

import fedotp
from fedotp.errors import FedotpError
from fedotp.runs.many import Trial, run_many
from fedotp.runs.one import prepare

QUICK = {"federation": {"rounds": 2, "holdout_clients": 0}, "evaluation": {"every": 1}}


def test_labels_stand_beside_other_images(inputs: Path, tmp_path: Path) -> None:
    true = prepare(make_config(inputs, **QUICK))
    wrong = prepare(make_config(inputs, **QUICK, authors={"mispaired_labels": True}))
    for name in ("train", "test"):
        ours, theirs = getattr(true.data, name), getattr(wrong.data, name)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        everything = np.arange(len(ours.labels))
        one, two = (images.features.read(everything).pooled for images in (ours, theirs))
        assert not np.array_equal(one.numpy(), two.numpy())
        rows = {row.tobytes() for row in one.numpy()}
        assert all(row.tobytes() in rows for row in two.numpy())  # other images of the same data
    first = [images.clients[0] for images in (true.data.test, wrong.data.test)]
    np.testing.assert_array_equal(*first)


def test_names_are_each_others(inputs: Path) -> None:
    config = make_config(inputs, **QUICK, authors={"shuffled_names": True})
    assert config.title == "FedOTP, shuffled names"
    names = {prepare(config.override([f"seed={seed}"])).task.classes for seed in range(6)}
    true = prepare(make_config(inputs, **QUICK)).task.classes
    assert len(names) > 1
    assert {tuple(sorted(each)) for each in names} == {tuple(sorted(true))}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"authors": {"mispaired_labels": True}}, "authors.mispaired_labels = true: it is for comparison"),
        ({"authors": {"shuffled_names": True}}, "authors.shuffled_names = true: it is for comparison"),
        ({"data": {"labels": "shuffled"}}, "was trained on shuffled labels: it is a control"),
    ],
)
def test_classifiers_of_wrong_labels_are_refused(
    changes: dict[str, Any], message: str, inputs: Path, tmp_path: Path
) -> None:
    config = make_config(inputs, federation={"rounds": 0, "holdout_clients": 0}, **changes)
    run = fedotp.run(config, tmp_path / "run")
    with pytest.raises(FedotpError, match=message):
        fedotp.load(run.path, client="client-0")


def test_its_normalisation_is_written_down(inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, federation={"rounds": 0, "holdout_clients": 0}, authors={"normalisation": "cifar10"})
    assert "bilinear" in fedotp.run(config, tmp_path / "run").manifest["transforms"]["test"]


def test_everything_at_once_is_written_down_and_runs_side_by_side_as_alone(inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, **QUICK, compute={"precision": "float64"})
    config = config.override(["bridge=authors", "data.crops=0", "authors.half_precision=false"])
    trials = [Trial(f"{seed}", {"seed": str(seed)}, config.override([f"seed={seed}"])) for seed in (0, 1)]
    for found in run_many(trials, tmp_path / "together"):
        assert not found.error
        text = (found.directory.path / "config.toml").read_text()
        assert "leaked_momentum = true" in text
        assert "batch_solver = true" in text
        assert "bridge" not in text
        alone = fedotp.run(found.trial.config, tmp_path / found.trial.name)
        for one, other in zip(found.directory.metrics("evaluation"), alone.metrics("evaluation"), strict=True):
            np.testing.assert_allclose(one["client_loss"], other["client_loss"], rtol=0, atol=1e-9)
