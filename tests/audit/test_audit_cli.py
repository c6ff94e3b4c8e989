"""`fedotp audit` on a tiny federation, by canaries and by a probe."""

import json
from pathlib import Path

import pytest

from audit.test_canaries import without_clip
from cli.cli_made import command
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import run
from runs.toy_run import make_config, make_inputs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that promises something, and one that does not, of one client."""
    inputs = make_inputs(tmp_path_factory.mktemp("audited"), n=12)
    short = {"rounds": 1, "holdout_clients": 0, "batch_size": 64}
    private = {"privacy": {"unit": "example", "noise": 3.0}, "partition": {"n_clients": 2}}
    run(make_config(inputs, federation=short, **private), inputs / "private")
    run(make_config(inputs, federation=short, partition={"n_clients": 1}), inputs / "plain")
    return inputs


def test_a_run_that_promises_is_audited(made: Path) -> None:
    done = command("audit", made / "private", "--canaries", 40)
    assert done.status == 0, done.err
    assert all(said in done.out for said in ("at least", "at most", "one training image", "from every release"))
    directory = RunDirectory.open(made / "private")
    kept = directory.finding("audit")
    assert kept is not None
    assert kept["upper"] == pytest.approx(directory.summary["privacy"]["epsilon"])
    assert kept["bound"]["epsilon"] < kept["upper"]
    assert (kept["unit"], kept["broken"]) == ("example", False)
    probed = command("audit", made / "private", "--probe")
    assert probed.status == 0, probed.err
    assert f"epsilon {kept['upper']:.3g}" in probed.out  # the most that it allows
    listed = command("runs", "show", made / "private")
    assert f"epsilon {kept['bound']['epsilon']:.3g}" in listed.out
    assert "membership  " in listed.out
    shown = command("report", made / "private", "--no-analysis")
    assert shown.status == 0, shown.err
    assert '"canaries":40' in (made / "private" / "report.html").read_text()


def test_a_broken_promise_ends_with_status_1(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_clip(monkeypatch)
    done = command("audit", made / "private", "--canaries", 100, "--out", made / "broken.json")
    assert done.status == 1, done.out
    assert "The privacy guarantee is violated" in done.out
    assert json.loads((made / "broken.json").read_text())["broken"]


def test_a_run_is_probed(made: Path) -> None:
    done = command("audit", made / "plain", "--probe")
    assert done.status == 0, done.err
    assert all(said in done.out for said in ("global", "zero-shot CLIP", "lower bound"))
    kept = RunDirectory.open(made / "plain").finding("probe")
    assert [(one["target"], one["score"]) for one in kept["attacks"]] == [
        (target, score) for target in ("personal", "global") for score in ("loss", "learned")
    ]
    assert kept["members"] == RunDirectory.open(made / "plain").manifest["data"]["train_images"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("private --set seed=1", "with --out"),
        ("data", "is not a run"),
        ("private --probe --canaries 9", "--canaries: unsupported with --probe"),
        ("plain", 'privacy.unit = "none": must be example, group or site'),
        ("nowhere --probe", "--probe needs the directory of a run, got nowhere"),
    ],
)
def test_what_cannot_be_audited_is_refused(made: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    monkeypatch.chdir(made)
    done = command("audit", *words.split())
    assert done.status == 2
    assert said in done.err
    assert done.err.count("error:") == 1
