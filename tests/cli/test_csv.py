"""Files for other programs: `--csv`, `--onnx`."""

import csv
import io
import json
import shutil
import sys
from pathlib import Path

import pytest
from cli_made import Fedotp, command

from fedotp.classifier import load
from fedotp.runs.directory import RunDirectory


@pytest.fixture(scope="module")
def trained(made: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("trained") / "run"
    views = ("--set", "evaluation.views=global", "--set", "evaluation.views_every=1")
    assert command("run", made / "tiny.toml", "--out", folder, "--quiet", *views).status == 0
    return RunDirectory.open(folder)


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_rounds_are_a_table(trained: RunDirectory, fedotp: Fedotp) -> None:
    done = fedotp("runs", "show", trained.path, "--csv")
    assert (done.status, done.err) == (0, "")
    rows = read(done.out)
    assert [row["round"] for row in rows] == ["0", "1", "2"]
    lines = [json.loads(line) for line in (trained.path / "metrics.jsonl").read_text().splitlines()]
    trained_, tested = ({r["round"]: r for r in lines if r["kind"] == kind} for kind in ("round", "evaluation"))
    assert [float(row["train_loss"]) for row in rows[1:]] == [trained_[n]["loss"] for n in (1, 2)]
    assert [float(row["test_loss"]) for row in rows] == [tested[n]["loss"] for n in (0, 1, 2)]
    assert [float(row["accuracy"]) for row in rows] == [tested[n]["accuracy"] for n in (0, 1, 2)]
    assert [float(row["bytes_up"]) for row in rows[1:]] == [trained_[n]["bytes_up"] for n in (1, 2)]
    assert rows[0]["train_loss"] == ""  # nothing was trained yet
    seen = {f"{r['view']} by {r['model']} model": r["accuracy"] for r in lines if r["kind"] == "view"}
    assert seen
    assert {name: float(rows[-1][name]) for name in seen} == seen


def test_predictions_are_a_table(trained: RunDirectory, made: Path, place: Path, fedotp: Fedotp) -> None:
    client = trained.manifest["clients"][0]
    image = made / "images" / "day" / "[bold]green" / "0.png"
    (place / "cut, short.png").write_bytes(image.read_bytes()[:200])
    done = fedotp("predict", trained.path, "--client", client, image, place / "cut, short.png", "--csv")
    assert done.status == 1
    assert "1 of 2 images could not be read" in done.err
    bad, good = read(done.out)  # what cannot be read is known first
    expected = load(trained.path, client).predict(image)
    assert (good["image"], good["predicted"], good["error"]) == (str(image), expected.labels[0], "")
    found = [float(good[f"p({name})"]) for name in expected.classes]
    assert found == pytest.approx(expected.probabilities[0].tolist())
    assert float(good["probability"]) == max(found)
    assert bad["image"].endswith("cut, short.png")
    assert bad["predicted"] == ""
    assert "cannot read image" in bad["error"]
    assert {bad[f"p({name})"] for name in expected.classes} == {""}  # as wide as the others


def test_names_are_no_formulas(trained: RunDirectory, made: Path, place: Path, fedotp: Fedotp) -> None:
    """A spreadsheet takes a cell that begins so for a formula, which may fetch addresses and start programs."""
    image = made / "images" / "day" / "blue" / "0.png"
    names = ["=1+1.png", "+1.png", "-1.png", "@SUM(1).png", "plain.png"]
    for name in names:
        shutil.copy(image, place / name)
    (place / "=cut.png").write_bytes(b"")
    words = ("--client", trained.manifest["clients"][0], "--csv", "--classes", "=cmd|'/C calc'!A0,-b", "--")
    done = fedotp("predict", *words, trained.path, *names, "=cut.png")
    bad, *rows = read(done.out)
    assert [row["image"] for row in rows] == [*(f"'{name}" for name in names[:4]), "plain.png"]
    assert bad["image"] == "'=cut.png"
    cells = [value for row in (bad, *rows) for value in (*row.keys(), *row.values())]
    assert [cell for cell in cells if cell[:1] in ("=", "+", "-", "@")] == []
    assert {row["predicted"] for row in rows} <= {"'=cmd|'/C calc'!A0", "'-b"}
    assert all(0 <= float(row["probability"]) <= 1 for row in rows)


def test_onnx_that_is_not_there_is_one_line_and_a_file_is_not_replaced_unasked(
    trained: RunDirectory, place: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("export", trained.path, "--client", trained.manifest["clients"][0], "--onnx", "--out", "here.onnx")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    done = fedotp(*words)
    assert done.status == 2
    assert done.err == "error: ONNX is not installed; install it with: pip install 'fedotp[onnx]'\n"
    Path("here.onnx").write_text("mine")
    done = fedotp(*words)
    assert "here.onnx already exists; choose another name, or overwrite it with --force" in done.err
    assert Path("here.onnx").read_text() == "mine"
