"""Directories of runs that somebody else made: links to other files, pipes that nobody writes to."""

import os
import shutil
from pathlib import Path

import pytest
from toy_run import make_config
from typer.testing import CliRunner

import fedotp
from fedotp.cli import app
from fedotp.errors import FedotpError
from fedotp.federation import RoundReport
from fedotp.runs.directory import RunDirectory
from fedotp.runs.watch import Observer


class _KilledError(Exception):
    """The run is killed."""


class _Deadly(Observer):
    def on_round(self, report: RoundReport) -> None:
        if report.round == 2:
            raise _KilledError


@pytest.fixture(scope="module")
def stopped(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run killed in its second round, whose line is written and whose checkpoint is not."""
    path = tmp_path_factory.mktemp("forged") / "run"
    with pytest.raises(_KilledError):
        fedotp.run(make_config(inputs), path, observer=_Deadly())
    return path


@pytest.fixture
def run(stopped: Path, tmp_path: Path) -> Path:
    shutil.copytree(stopped, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["metrics.jsonl", "state/private.bin", "state/lock"])
def test_a_link_in_a_run_does_not_lead_to_other_files_being_written(name: str, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.move(run / name, other)
    (run / name).symlink_to(other)
    before = other.read_bytes()
    with pytest.raises(FedotpError, match=f"cannot write .*{name}: Too many levels of symbolic links"):
        fedotp.resume(run)
    assert other.read_bytes() == before


@pytest.mark.parametrize(
    "name",
    ["config.toml", "manifest.json", "partition.json", "metrics.jsonl", "state/checkpoint.safetensors", "state/lock"],
)
@pytest.mark.parametrize("place", ["a pipe", "an endless device"])
def test_a_file_of_a_run_that_never_ends_is_not_waited_for(name: str, place: str, run: Path) -> None:
    (run / name).unlink()
    if place == "a pipe":
        os.mkfifo(run / name)
    else:
        (run / name).symlink_to("/dev/zero")
    for words in (["runs", "list", str(run)], ["runs", "show", str(run)], ["run", "--resume", str(run), "--quiet"]):
        ended = CliRunner().invoke(app, words)
        assert ended.exception is None or isinstance(ended.exception, FedotpError | SystemExit), ended.exception


@pytest.mark.parametrize("key", ["digest", "content", "name"])
def test_a_manifest_that_lacks_a_digest_is_refused(key: str, run: Path) -> None:
    manifest = RunDirectory(run).manifest
    if key == "name":
        manifest["data"]["digest"] = "0"  # only then is the name asked for
    del manifest["data"][key]
    RunDirectory(run).save_manifest(manifest)
    with pytest.raises(FedotpError, match=f"is damaged: KeyError '{key}'"):
        fedotp.resume(run)
