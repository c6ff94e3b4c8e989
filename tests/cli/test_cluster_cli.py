"""`fedotp compare --engine ray` on two nodes, as users start them: the table is that of one machine, bit for bit."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_made import Fedotp
from ray_nodes import Node, two_nodes, wait_for

from fedotp import RunDirectory, _imports
from fedotp.methods import METHODS
from runs.toy_run import assert_same_outcome, outcome
from stranger import NAME, write_method

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]


def rows(folder: str) -> list[dict[str, str]]:
    """The table but for times."""
    found = csv.DictReader(Path(folder, "table.csv").read_text().splitlines())
    return [{key: value for key, value in row.items() if not key.startswith("seconds")} for row in found]


def n_complete(folder: str) -> int:
    return len(list(Path(folder).glob("*/summary.json")))


@contextmanager
def started(words: list[str], address: str) -> Iterator["subprocess.Popen[str]"]:
    """The command in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from fedotp.cli import main; main()", *words],
        env=os.environ | {"RAY_ADDRESS": address, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run_in_the_middle(node: Node) -> Path | None:
    """A run that a process of the node holds and that is neither new nor complete."""
    for file in node.open_files():
        run = RunDirectory(file.parent.parent)
        if file.name == "lock" and run.checkpoint.is_file() and not run.is_complete:
            return run.path
    return None


def kill_in_the_middle(node: Node, process: "subprocess.Popen[str]") -> Path:
    """Kill a node that has a run with a checkpoint; return it."""
    while True:
        wait_for(lambda: run_in_the_middle(node) or process.poll() is not None)
        assert process.poll() is None, process.communicate()[1]
        node.signal(signal.SIGSTOP)  # it must not end while we look
        if found := run_in_the_middle(node):
            node.kill()
            return found
        node.signal(signal.SIGCONT)


def test_a_table_on_two_nodes_one_of_which_is_killed(place: Path, fedotp: Fedotp) -> None:
    """First Ctrl-C, then the same command and a kill: the runs are those of one machine, to the last bit."""
    pytest.importorskip("ray")
    own = write_method(place)
    words = ["compare", "tiny.toml", "--methods", f"fedotp,promptfl,{NAME}", "--seeds", "0..3", "--import", str(own)]
    words += ["--set", "federation.rounds=8", "--set", "compute.group_size=64"]
    with two_nodes() as (address, _head, node):
        there = [*words, "--out", "there", "--engine", "ray"]
        with started(there, address) as process:
            wait_for(lambda: n_complete("there") or process.poll() is not None)
            assert process.poll() is None, process.communicate()[1]
            os.killpg(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=300)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert "runs are left; the same command continues them" in err
        assert not any(RunDirectory(path).is_running for path in Path("there").iterdir())
        before = n_complete("there")
        assert before < 12

        with started(there, address) as process:
            wait_for(lambda: n_complete("there") >= min(before + 2, 11) or process.poll() is not None)
            lost = kill_in_the_middle(node, process)
            _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert f"{lost.name}: continues elsewhere from its last checkpoint" in err
        assert [record["round"] for record in RunDirectory(lost).metrics("round")] == list(range(1, 9))
    assert not [*Path("there").glob(".*")]
    try:
        assert fedotp(*words, "--out", "here", "--quiet").status == 0
        assert rows("there") == rows("here")
        runs = sorted(path for path in Path("here").iterdir() if path.is_dir())
        assert len(runs) == 12
        for path in runs:
            same = [outcome(RunDirectory(parent / path.name)) for parent in (Path("here"), Path("there"))]
            assert_same_outcome(*same, path.name)
    finally:
        os.environ.pop(_imports.VARIABLE, None)
        METHODS.pop(NAME, None)
