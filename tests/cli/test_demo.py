"""`fedotp demo`, as a newcomer runs it, on the embedded backbone and images."""

import csv
from pathlib import Path

import pytest
from cli_made import Fedotp
from PIL import Image

from fedotp.config import load_config
from fedotp.runs import RunDirectory, run


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDOTP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_the_demo_shows_the_effect_and_repeats_itself(fedotp: Fedotp, tmp_path: Path) -> None:
    done = fedotp("demo", "--quiet")
    assert done.status == 0, done.err
    with open(tmp_path / "runs/demo/table.csv", newline="") as file:
        accuracy = {row["method"]: float(row["accuracy_mean"]) for row in csv.DictReader(file)}
    assert 0.86 < accuracy["Zero-shot CLIP"] < 0.90
    assert 0.83 < accuracy["PromptFL"] < 0.93  # one prompt for all helps little under such skew
    assert 0.96 < accuracy["CoOp (local)"] <= 1
    assert 0.96 < accuracy["FedOTP"] <= 1
    for name in ("accuracy", "transport"):
        with Image.open(tmp_path / f"runs/demo/{name}.png") as picture:
            assert min(picture.size) > 500
    next_ = done.out.partition("What to try next:")[2]
    for words in ("report runs/demo", "serve runs/demo/fedotp,seed=0", "runs show runs/demo/fedotp,seed=0"):
        assert f"  fedotp {words}\n" in next_
    shown = fedotp("demo", "--quiet").out  # again: nothing is run anew
    assert shown == done.out

    first = RunDirectory.open(tmp_path / "runs/demo/fedotp,seed=0")
    again = run(load_config("demo").override(["federation.rounds=2"]), tmp_path / "again")
    then, now = ([e["client_accuracy"] for e in r.metrics("evaluation")][:3] for r in (first, again))
    assert then == now
    losses = [[r["client_loss"] for r in x.metrics("round")][:2] for x in (first, again)]
    assert losses[0] == losses[1]
