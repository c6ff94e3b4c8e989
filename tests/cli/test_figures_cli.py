"""`fedotp figures` in the hands of a user."""

import shutil
from pathlib import Path

import pytest
from cli_made import Fedotp, command

from fedotp.runs.directory import RunDirectory


@pytest.fixture(scope="module")
def drawn(trained: RunDirectory, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedOTP at two masses, and PromptFL."""
    folder = tmp_path_factory.mktemp("drawn")
    shutil.copytree(trained.path, folder / "a")
    for name, change in (("b", "method.mass=0.4"), ("c", "method.name=promptfl")):
        assert command("run", made / "tiny.toml", "--set", change, "--out", folder / name, "-q").status == 0
    return folder


@pytest.fixture
def runs(drawn: Path, place: Path) -> Path:
    return Path(shutil.copytree(drawn, place / "runs"))


def written(out: str) -> list[str]:
    return [Path(line.split(maxsplit=1)[1]).name for line in out.splitlines() if line.startswith("figure ")]


def test_figures_of_several_runs(runs: Path, place: Path, fedotp: Fedotp) -> None:
    done = fedotp("figures", runs, "--only", "curves,similarity,plans", "--images", "1", "--format", "svg,pdf")
    assert done.status == 0, done.err
    names = ("curves", "similarity", "plans-a", "plans-b")
    assert written(done.out) == [f"{name}.{ending}" for name in names for ending in ("svg", "pdf")]
    assert {path.name for path in (place / "figures").iterdir()} == set(written(done.out))
    again = fedotp("figures", runs, "--against", "method.mass", "--out", place / "other")
    assert written(again.out) == ["against-mass.png"]
