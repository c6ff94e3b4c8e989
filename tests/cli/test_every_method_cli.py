"""Every command works on every method; among them is one of the tests' own, a single file (`tests/anchored.py`)."""

import json
from pathlib import Path

import numpy as np
import pytest
from cli_made import Fedotp, command

from anchored import STRUCTURES
from fedotp.config import load_config
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import run
from runs.toy_run import Stops


@pytest.fixture(scope="module", params=STRUCTURES)
def trained(request: pytest.FixtureRequest, made: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of a method, killed in its first round and resumed."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    config = load_config(str(made / "tiny.toml")).override([f"method.name={request.param}"])
    try:
        run(config, folder, observer=Stops())
    except KeyboardInterrupt:
        done = command("run", "--resume", folder, "--quiet")
        assert done.status == 0, done.err
    return RunDirectory.open(folder)


def test_a_run_is_compared_evaluated_and_looked_at(trained: RunDirectory, place: Path, fedotp: Fedotp) -> None:
    name = trained.config.method.name
    compared = fedotp("compare", "tiny.toml", "--methods", name, "--out", "compared", "--seeds", 0)
    assert compared.status == 0, compared.err
    (alone,) = (RunDirectory(path.parent) for path in place.glob("compared/*/config.toml"))
    assert alone.summary["final"] == trained.summary["final"]  # though that one was resumed
    evaluated = fedotp("evaluate", trained.path, "--json")
    assert evaluated.status == 0, evaluated.err
    assert json.loads(evaluated.out)["accuracy"] == trained.summary["final"]["accuracy"]
    for words in (["report", trained.path, "--out", "report.html"], ["figures", trained.path, "--out", "figures"]):
        done = fedotp(*words)
        assert done.status == 0, done.err
    assert trained.config.method.title in (place / "report.html").read_text()
    assert (place / "figures").is_dir()


def test_a_client_joins(trained: RunDirectory, made: Path, fedotp: Fedotp) -> None:
    before = trained.checkpoint.read_bytes()
    done = fedotp("join", trained.path, "--data", made / "images" / "night", "--epochs", 2, "--json")
    assert done.status == 0, done.err
    result = json.loads(done.out)
    assert np.isfinite(result["after"]["loss"])
    assert trained.checkpoint.read_bytes() == before
