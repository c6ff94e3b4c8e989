"""A command imports what it needs: it starts in the time that takes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_made import command

COMMAND = """
import sys
from fedotp.cli import main
try:
    main()
finally:
    print(*{name.partition(".")[0] for name in sys.modules}, *{"torch._dynamo"} & sys.modules.keys(), file=sys.stderr)
"""


def imported_by(*arguments: str, folder: Path) -> set[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", COMMAND, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("presets",)])
def test_what_is_only_printed_needs_no_numbers(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert not imported_by(*arguments, folder=tmp_path) & {"numpy", "PIL", "torch"}


@pytest.fixture(scope="module")
def runs(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a complete run, and with one that has a checkpoint but no summary yet."""
    folder = tmp_path_factory.mktemp("runs")
    command("run", made / "tiny.toml", "--out", folder / "complete", "--quiet")
    shutil.copytree(folder / "complete", folder / "stopped")
    (folder / "stopped" / "summary.json").unlink()
    return folder


@pytest.mark.parametrize(
    "arguments", [("runs", "list", "."), ("runs", "show", "complete"), ("runs", "show", "stopped")]
)
def test_runs_are_looked_at_without_torch(arguments: tuple[str, ...], runs: Path) -> None:
    assert "torch" not in imported_by(*arguments, folder=runs)


def test_the_list_of_data_sets_needs_no_torch(tmp_path: Path) -> None:
    assert "torch" not in imported_by("data", "list", folder=tmp_path)


def test_a_run_does_not_wait_for_what_it_does_not_use(made: Path, tmp_path: Path) -> None:
    changes = ("federation.rounds=1", f"data.store={tmp_path}/tokens")
    words = [word for change in changes for word in ("--set", change)]
    imported = imported_by("run", str(made / "tiny.toml"), *words, folder=tmp_path)
    assert "torch" in imported
    unused = {"datasets", "flwr", "matplotlib", "pandas", "scipy", "sklearn", "sympy", "torch._dynamo", "transformers"}
    assert not imported & unused
