"""`fedotp join`: a client the run has never seen."""

import json
import shutil
from pathlib import Path

from cli_made import Fedotp
from safetensors.torch import load_file

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
    assert again.err == "error: here/joined/new-site exists already; choose another --name\n"


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
