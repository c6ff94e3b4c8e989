"""Windows and macOS, as far as Linux can tell: without what Python does not have there, a run ends the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy_run import assert_same_outcome, outcome

import fedotp

HERE = Path(__file__).parent

TRITON = {"fedotp.ot._fused", "fedotp.prompts._fused"}  # which only machines with CUDA have


def elsewhere(system: str, inputs: Path, path: Path) -> list[str]:
    """What a process prints that runs, is killed, resumes and evaluates as on `system`."""
    paths = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(HERE / "other_system.py"), system, str(path), str(inputs)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("system", ["windows", pytest.param("macos", marks=pytest.mark.processes)])
def test_a_run_is_stopped_resumed_and_evaluated(
    system: str, inputs: Path, tmp_path: Path, expected: dict[str, object]
) -> None:
    not_there, *said = elsewhere(system, inputs, tmp_path / "run")
    assert_same_outcome(outcome(fedotp.RunDirectory(tmp_path / "run")), expected)
    names = {*not_there.split()}
    assert {name for name in names if system == "macos" or not name.startswith("fedotp.flower.")} == TRITON
    refused = [line.split(":")[:2] for line in said if "needs Linux or macOS" in line]
    commands = ("server", "client", "keys") if system == "windows" else ()
    assert refused == [["2 error", f" fedotp {command} needs Linux or macOS"] for command in commands]
