"""A command imports only what it needs, so that it starts quickly."""

import shutil
from pathlib import Path

from fedotp.runs.directory import RunDirectory
from own_process import python

COMMANDS = """
import sys
from fedotp.cli import main
for words in sys.argv[1:]:
    sys.argv = ["fedotp", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
print(*{name.partition(".")[0] for name in sys.modules}, *{"torch._dynamo"} & sys.modules.keys(), file=sys.stderr)
"""


def imported_by(*commands: str, folder: Path) -> set[str]:
    """What one process imports that runs these commands."""
    return set(python("-c", COMMANDS, *commands, cwd=folder).stderr.splitlines()[-1].split())


def test_what_is_only_printed_needs_no_numbers(tmp_path: Path) -> None:
    assert not imported_by("--help", "run --help", "presets", folder=tmp_path) & {"numpy", "PIL", "torch"}


def test_runs_and_data_sets_are_looked_at_without_torch(trained: RunDirectory, tmp_path: Path) -> None:
    for name in ("complete", "stopped"):
        shutil.copytree(trained.path, tmp_path / name)
    (tmp_path / "stopped" / "summary.json").unlink()
    commands = ("runs list .", "runs show complete", "runs show stopped", "data list")
    assert "torch" not in imported_by(*commands, folder=tmp_path)


def test_a_run_does_not_wait_for_what_it_does_not_use(made: Path, tmp_path: Path) -> None:
    changes = f"--set federation.rounds=1 --set data.store={tmp_path}/tokens"
    imported = imported_by(f"run {made}/tiny.toml {changes}", folder=tmp_path)
    assert "torch" in imported
    unused = {"datasets", "flwr", "matplotlib", "pandas", "scipy", "sklearn", "sympy", "torch._dynamo", "transformers"}
    assert not imported & unused
