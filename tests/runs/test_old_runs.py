"""Runs and a bundle made by an earlier version (commit 7e7c397) are read, gone on with and used by this one.

`made_before.zip` holds the runs of `make_config` with three methods, one more that was stopped after its second round,
a client that joined, a bundle of client-0, and the images. The tower is made anew: it is the same random one.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import fedotp
from fedotp.clip import CLIP, TINY, save
from fedotp.report import measure_bound, prompt_words
from fedotp.runs import RunDirectory, join, resume, stored_parameters

RUNS = ("fedotp", "fedper", "fedamp")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with zipfile.ZipFile(Path(__file__).with_name("made_before.zip")) as file:
        file.extractall(folder)
    save(CLIP.random(TINY), folder / "tiny.safetensors")
    return folder


@pytest.fixture(autouse=True)
def _there(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(old)  # where things are is written relative to it


def same_as_before(numbers: dict[str, float]) -> dict[str, float]:
    """Without what was not measured when the runs were made, or was measured otherwise."""
    return {key: value for key, value in numbers.items() if key not in ("balanced_accuracy", "macro_f1")}


@pytest.mark.parametrize("name", RUNS)
def test_an_old_run_is_evaluated_as_it_was(name: str) -> None:
    before = RunDirectory.open(name).summary["final"]
    assert same_as_before(fedotp.evaluate_run(name).totals()) == pytest.approx(same_as_before(before), abs=1e-6)


def test_an_old_run_goes_on_and_ends_where_it_would_have_ended() -> None:
    resume("stopped")
    ended, undisturbed = RunDirectory.open("stopped"), RunDirectory.open("fedotp")
    mine, theirs = (same_as_before(run.summary["final"]) for run in (ended, undisturbed))
    assert mine == pytest.approx(theirs, abs=1e-6)
    for mine, theirs in zip(stored_parameters(ended)[:2], stored_parameters(undisturbed)[:2], strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_allclose(mine[name], theirs[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", RUNS)
def test_an_old_runs_clients_classify_as_they_did(name: str) -> None:
    run = RunDirectory.open(name)
    lines, test = run.predictions(), fedotp.data.load_dataset("data").test
    client = int(lines.client[0])
    mine = lines.client == client
    classifier = fedotp.load(name, client=run.manifest["clients"][client])
    found = classifier.predict([test.image(int(row)) for row in lines.row[mine]])
    assert found.probabilities.argmax(-1).tolist() == lines.predicted[mine].tolist()
    own = found.probabilities[np.arange(mine.sum()), lines.label[mine]]
    np.testing.assert_allclose(-np.log(own), lines.loss[mine], rtol=0, atol=1e-5)


def test_an_old_bundle_says_what_its_run_says() -> None:
    image = fedotp.data.load_dataset("data").test.image(0)
    bundle, run = fedotp.load("bundle", backbone="tiny.safetensors"), fedotp.load("fedotp", client="client-0")
    np.testing.assert_allclose(bundle.predict(image).probabilities, run.predict(image).probabilities, rtol=0, atol=1e-6)


def test_a_client_that_joined_an_old_run_is_there_and_joins_alike() -> None:
    assert fedotp.load("fedotp", client="newcomer").client == "newcomer"
    before = json.loads(Path("fedotp/joined/newcomer/result.json").read_text())
    again = join("fedotp", "data/day", name="again")
    for when in ("before", "after"):
        assert same_as_before(again[when]) == pytest.approx(same_as_before(before[when]), abs=1e-5)


def test_an_old_run_is_looked_into() -> None:
    words = prompt_words("fedotp")
    assert {(prompt.client is None, prompt.kind) for prompt in words} == {(True, "global"), (False, "local")}
    assert measure_bound("fedotp").symbols["N"] == 4
