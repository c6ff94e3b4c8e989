"""Attacks in whole runs: painted images, numbers in files and tables, runs side by side."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from toy_run import COLOURS, make_config

import fedotp
from coloured_squares import draw_squares
from fedotp.data import load_dataset, painted
from fedotp.data._painted import paint
from fedotp.errors import FedotpError, SettingError
from fedotp.federation import Checkpoint
from fedotp.runs.many import Trial, run_many
from fedotp.runs.one import see_run

BACKDOOR = {"name": "backdoor", "share": 0.5, "target": "blue", "poisoned": 1.0}


@pytest.mark.parametrize("size", [(8, 8), (12, 8), (8, 13), (1, 1)])
def test_the_patch_is_where_the_central_crop_keeps_it(size: tuple[int, int]) -> None:
    grey = Image.new("RGB", size, (90, 90, 90))
    pixels = np.asarray(paint(grey, 0.25))  # (H, W, 3)
    changed = (pixels != 90).any(-1)
    short = min(size)
    n = max(1, round(0.25 * short))
    assert changed.sum() == n * n
    assert (pixels[changed] == (255, 0, 255)).all()
    top, left = (size[1] - short) // 2, (size[0] - short) // 2
    middle = changed[top : top + short, left : left + short]
    assert middle[short - n :, short - n :].all()
    assert (np.asarray(grey) == 90).all()  # a copy


def test_painted_images_are_images_like_any(tmp_path: Path) -> None:
    draw_squares(tmp_path, COLOURS, 2)
    dataset = load_dataset(tmp_path)
    other = painted(dataset, 0.5)
    assert other.train.read(0) != dataset.train.read(0)
    assert other.train.read(0) == other.train.read(0)
    before, after = (np.asarray(some.train.image(0).convert("RGB")) for some in (dataset, other))
    assert np.array_equal(np.asarray(paint(Image.fromarray(before), 0.5)), after)
    assert other.digest != dataset.digest
    assert other.train.labels.tolist() == dataset.train.labels.tolist()


@pytest.mark.parametrize("attack", [BACKDOOR, {"name": "label-flip", "share": 0.5, "scale": 2}])
def test_success_is_in_metrics_summary_and_table(attack: dict[str, object], inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, attack=attack, evaluation={"clients": 0, "views_every": 1}, federation={"rounds": 2})
    run = fedotp.run(config, tmp_path / "run")
    views = [record for record in run.metrics("view") if record["view"] == "attack success"]
    assert [record["round"] for record in views] == [0, 1, 2]
    (entry,) = [view for view in run.summary["views"] if view["view"] == "attack success"]
    assert entry["last"] == views[-1]["accuracy"]
    assert len(run.summary["malicious"]) == 2
    assert not {client["name"] for client in run.summary["clients"]} & set(run.summary["malicious"])
    assert run.summary["method"].startswith("FedOTP, ")
    assert "from 50%" in run.summary["method"]
    again = see_run(run.path, ["personal"])[1]
    assert [view.evaluation.mean for view in again] == [entry["last"]]


def test_runs_side_by_side_are_those_alone(inputs: Path, tmp_path: Path) -> None:
    base = make_config(inputs, attack=BACKDOOR, federation={"rounds": 2, "participation": 1.0})
    changes = {
        "one": ["seed=1"],
        "two": ["seed=2", "server.rule=median"],
        "three": ["attack.name=sign-flip"],
        "four": ["attack.name=none"],
        "five": ["attack.name=label-flip"],
    }
    trials = [Trial(name, {"run": name}, base.override(change)) for name, change in changes.items()]
    together = run_many(trials, tmp_path / "together")
    assert not [outcome.error for outcome in together if outcome.error]
    for trial in trials:
        alone = fedotp.run(trial.config, tmp_path / trial.name)
        joined = next(outcome.directory for outcome in together if outcome.trial.name == trial.name)
        expected, found = Checkpoint.read(alone.checkpoint).server, Checkpoint.read(joined.checkpoint).server
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        assert joined.summary.get("malicious") == alone.summary.get("malicious")


def test_a_target_that_is_no_class_and_wrong_labels_are_refused(inputs: Path, tmp_path: Path) -> None:
    config = make_config(inputs, attack={**BACKDOOR, "target": "mauve"})
    with pytest.raises(SettingError, match=r"attack\.target = 'mauve': must be one of the classes"):
        fedotp.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(FedotpError, match=r'attack\.name = "backdoor": must be "none", "sign-flip"'):
        make_config(inputs, attack=BACKDOOR, data={"labels": "shuffled"})
