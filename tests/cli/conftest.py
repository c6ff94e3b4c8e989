"""A working directory with a tiny federation to run, and the command to run it."""

from pathlib import Path

import pytest
from cli_made import Fedotp, command, make


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


@pytest.fixture
def fedotp(monkeypatch: pytest.MonkeyPatch) -> Fedotp:
    """The command `fedotp` on a terminal of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    return command
