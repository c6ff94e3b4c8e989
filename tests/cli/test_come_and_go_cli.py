"""`fedotp join` and `forget`: clients that come and go."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_made import Fedotp
from safetensors.torch import load_file

from fedotp import load
from fedotp.federation import Checkpoint
from fedotp.runs.directory import RunDirectory


def test_a_new_client_is_fitted_and_the_run_stays_as_it_is(
    here: RunDirectory, made: Path, place: Path, fedotp: Fedotp
) -> None:
    new = place / "new-site"
    shutil.copytree(made / "images" / "night", new)
    shutil.rmtree(new / "red")  # a site need not have all classes
    before = here.checkpoint.read_bytes()
    done = fedotp("join", "here", "--data", new, "--epochs", 5, "--json")
    assert done.status == 0, done.err
    result = json.loads(done.out)
    assert result["client"] == "new-site"
    assert result["train_images"] + result["test_images"] == 16
    assert result["after"]["loss"] < result["before"]["loss"]
    assert here.checkpoint.read_bytes() == before
    folder = place / "here/joined/new-site"
    assert json.loads((folder / "result.json").read_text()) == result
    assert {name: tuple(value.shape) for name, value in load_file(folder / "private.safetensors").items()} == {
        "private": (1, 2, 64)
    }
    again = fedotp("join", "here", "--data", new)
    assert again.status == 2
    assert again.err == "error: here/joined/new-site already exists; choose another --name\n"


def test_a_new_client_of_a_closed_form_has_weights_of_its_own(made: Path, place: Path, fedotp: Fedotp) -> None:
    """The ridge in which its own images count five times, solved here with NumPy."""
    changes = ["--set", "method.name=ridge", "--set", "method.personal=5"]
    assert fedotp("run", "tiny.toml", *changes, "--out", "ridge", "--quiet").status == 0
    assert fedotp("join", "ridge", "--data", made / "images" / "night", "--name", "new").status == 0
    own = {name: value.numpy() for name, value in load_file(place / "ridge/joined/new/private.safetensors").items()}
    assert np.trace(own["own_gram"]) == pytest.approx(1)  # features of length 1
    state = Checkpoint.read(RunDirectory(place / "ridge").checkpoint).server
    server = {name: value.numpy() for name, value in state.items()}
    share = 5 * own["own_images"] / server["images"]
    gram = server["gram"] + share * own["own_gram"] + 0.03 * np.eye(len(server["gram"]))
    weights = np.linalg.solve(gram, server["cross"] + share * own["own_cross"] + 0.03 * 2 * server["captions"].T)
    joined = load(place / "ridge", client="new").predictor.params["weights"][0].numpy()
    np.testing.assert_allclose(joined, weights, atol=1e-10)


def test_a_site_of_a_table_joins(here: RunDirectory, made: Path, place: Path, fedotp: Fedotp) -> None:
    """With its own images and its own classes only."""
    found = [path for path in sorted((made / "images").rglob("*.png")) if path.parts[-3:-1] != ("night", "red")]
    lines = [f"{path.relative_to(made)},{path.parent.name},{path.parts[-3]}" for path in found]
    (made / "sites.csv").write_text("\n".join(["path,label,site", *lines]))
    done = fedotp("join", "here", "--data", made / "sites.csv", "--site", "night", "--json")
    assert done.status == 0, done.err
    result = json.loads(done.out)
    assert (result["client"], result["train_images"], result["test_images"]) == ("night", 12, 4)
    done = fedotp("join", "here", "--data", made / "sites.csv", "--site", "dawn")
    assert (done.status, done.err) == (2, "error: sites has no site 'dawn'; its sites are day, night\n")


def test_a_client_is_forgotten(here: RunDirectory, fedotp: Fedotp) -> None:
    names = here.manifest["clients"]
    done = fedotp("forget", "here", "--client", names[1], "--quiet")
    assert done.status == 0, done.err
    assert f"forgotten     {names[1]}" in done.out
    assert f"here still contains {names[1]}: delete it" in done.err
    left = f"here-without-{names[1]}"
    never = fedotp("run", "tiny.toml", "--set", f'federation.without=["{names[1]}"]', "--out", "never", "--quiet")
    assert never.status == 0, never.err
    checked = fedotp("forget", "--check", f"{left}/forgotten.json", "--against", "never")
    assert checked.status == 0, checked.err
    assert checked.out.endswith("never is bit-equal\n")
    another = fedotp("forget", "--check", left, "--against", "here")
    assert another.status == 1
    assert "here: mismatch with the certificate: state\n" in another.err
    assert "without" in fedotp("runs", "show", left).out
