"""Windows and macOS, as far as Linux can tell: without what Python does not have there, a run ends the same."""

from pathlib import Path

import pytest
from toy_run import assert_same_outcome, outcome

import fedotp
from own_process import python

TRITON = {"fedotp.ot._fused", "fedotp.prompts._fused"}  # which only machines with CUDA have


@pytest.mark.parametrize("system", ["windows", pytest.param("macos", marks=pytest.mark.processes)])
def test_a_run_is_stopped_resumed_and_evaluated(
    system: str, inputs: Path, tmp_path: Path, expected: dict[str, object]
) -> None:
    """By a process that runs, is killed, resumes and evaluates as there."""
    program = Path(__file__).with_name("other_system.py")
    done = python(program, system, tmp_path / "run", inputs, OMP_NUM_THREADS="1")
    not_there, *said = done.stdout.splitlines()
    assert_same_outcome(outcome(fedotp.RunDirectory(tmp_path / "run")), expected)
    names = {*not_there.split()}
    assert {name for name in names if system == "macos" or not name.startswith("fedotp.flower.")} == TRITON
    refused = [line.split(":")[:2] for line in said if "needs Linux or macOS" in line]
    commands = ("server", "client", "keys") if system == "windows" else ()
    assert refused == [["2 error", f" fedotp {command} needs Linux or macOS"] for command in commands]
