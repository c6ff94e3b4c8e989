"""A working directory with a tiny federation to run, the command to run it, and a run that all tests share."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_made import Fedotp, command, make

from fedotp.runs.directory import RunDirectory
from stranger import forget


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with backbones, images, the token store and tiny.toml, made once."""
    folder = tmp_path_factory.mktemp("made")
    make(folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with tiny.toml."""
    (tmp_path / "tiny.toml").write_text((made / "tiny.toml").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def trained(made: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of tiny.toml, to be read only."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    done = command("run", made / "tiny.toml", "--out", folder, "--quiet")
    assert done.status == 0, done.err
    return RunDirectory.open(folder)


@pytest.fixture(scope="session")
def client(trained: RunDirectory) -> str:
    """One of its clients."""
    return str(trained.manifest["clients"][0])


@pytest.fixture
def here(trained: RunDirectory, place: Path) -> RunDirectory:
    """A copy of it in the working directory, `here`."""
    shutil.copytree(trained.path, place / "here")
    return RunDirectory.open("here")


@pytest.fixture
def fedotp(monkeypatch: pytest.MonkeyPatch) -> Fedotp:
    """The command `fedotp` on a terminal of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    return command


@pytest.fixture
def as_new() -> Iterator[None]:
    """Nothing of a stranger's is registered, and nothing stays."""
    forget()
    yield
    forget()
