"""`fedotp compare` and `fedotp sweep` as a user types them."""

import csv
import os
import re
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path

import pytest
from cli_made import Fedotp, started
from rich.console import Console

from fedotp import RunDirectory
from fedotp.cli.progress import ManyBars
from fedotp.config import load_config
from fedotp.runs.many import ManyObserver, Update, by_method, run_many


def table(folder: str) -> list[dict[str, str]]:
    """The rows of what was asked for; controls come after them."""
    rows = list(csv.DictReader(Path(folder, "table.csv").read_text().splitlines()))
    return [row for row in rows if not next(iter(row.values())).startswith("control: ")]


def test_compare(place: Path, fedotp: Fedotp) -> None:
    words = ("compare", "tiny.toml", "--methods", "fedotp,fedotp:rule=classical,zeroshot", "--seeds", "0,1")
    done = fedotp(*words)
    assert done.status == 0
    folder = "runs/compare-tiny"
    rows = table(folder)
    assert [row["method"] for row in rows] == ["FedOTP", "FedOTP, rule=classical", "Zero-shot CLIP"]
    runs = [RunDirectory.open(f"{folder}/fedotp,seed={seed}") for seed in (0, 1)]
    accuracy = [run.summary["final"]["accuracy"] for run in runs]
    assert float(rows[0]["accuracy_mean"]) == pytest.approx(sum(accuracy) / 2)
    assert runs[0].partition.digest == runs[1].partition.digest
    assert RunDirectory.open(f"{folder}/fedotp,rule=classical,seed=1").config.method.rule == "classical"
    assert done.out.splitlines()[1].split("  ")[0] == "method"
    assert done.out.endswith(f"table  {folder}/table.csv\ntable  {folder}/table.md\nruns   {folder}\n")
    markdown = Path(folder, "table.md").read_text()
    assert re.search(r"\| FedOTP, rule=classical( \(!\))? \| 2 \|", markdown)
    for shown in (markdown, done.out):
        assert "control: majority" in shown
        assert re.search(r"points (over|against) .* clients", shown, re.DOTALL)  # a random tower
    assert done.err.splitlines()[-1].startswith("6 of 6: zeroshot,seed=1, accuracy ")

    written = {path: path.stat().st_mtime_ns for path in Path(folder).rglob("summary.json")}
    again = fedotp(*words[:4], "--seeds", "0,1..2")
    assert again.err.splitlines()[0] == "9 runs, 6 already complete"
    assert {path: path.stat().st_mtime_ns for path in written} == written
    assert [row["runs"] for row in table(folder)] == ["3", "3", "3"]


def test_two_processes_give_what_one_gives_and_a_run_that_fails_stops_no_other(place: Path, fedotp: Fedotp) -> None:
    words = ("sweep", "tiny.toml", "--grid", "partition.min_size=1,2,1000", "--seeds", "0,1", "--quiet")
    for name, jobs in (("two", 2), ("one", 1)):
        done = fedotp(*words, "--jobs", jobs, "--out", name)
        assert done.status == 1
        failed = [line.partition(": ")[2].partition(": ")[0] for line in done.err.splitlines()]
        assert sorted(failed) == [f"partition.min_size=1000,seed={seed}" for seed in (0, 1)]
        assert [row["runs"] for row in table(name)] == ["2", "2", "0"]
    names = [f"partition.min_size={size},seed={seed}" for size in (1, 2) for seed in (0, 1)]
    assert sorted(path.parent.name for path in Path("two").glob("*/summary.json")) == names
    timeless = [key for key in table("one")[0] if not key.startswith("seconds")]
    one, two = ([[row[key] for key in timeless] for row in table(name)] for name in ("one", "two"))
    assert one == two


class Killer(ManyObserver):
    """Ends one of the processes as a full memory would."""

    def __init__(self) -> None:
        self.victims = 0

    def on_update(self, update: Update) -> None:
        if not self.victims:
            self.victims += 1
            active_children()[0].kill()


@pytest.mark.processes
def test_a_process_that_dies_takes_only_its_run_with_it(place: Path) -> None:
    config = load_config("tiny.toml").override(["federation.rounds=30", "evaluation.every=0"])
    trials = by_method(config, ["fedotp", "promptfl"], [0])
    outcomes = run_many(trials, "here", jobs=2, observer=Killer())
    assert sorted(outcome.directory.is_complete for outcome in outcomes) == [False, True]
    assert sorted(outcome.error for outcome in outcomes) == [
        "",
        "its process was killed by SIGKILL (possibly out of memory)",
    ]


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a worker ends when it next reports its progress")
def test_a_comparison_that_is_killed_takes_its_processes_with_it(place: Path, fedotp: Fedotp) -> None:
    words = ["compare", "tiny.toml", "--methods", "fedotp,promptfl", "--seeds", "0", "--out", "here"]
    words += ["--set", "federation.local_epochs=5000", "--set", "federation.rounds=1"]  # they do not end by themselves
    process = started(*words, "--jobs", 2)
    first = RunDirectory("here/fedotp,seed=0")
    while process.poll() is None and not first.is_running:
        time.sleep(0.01)
    assert process.poll() is None
    process.kill()
    process.wait()
    deadline = time.monotonic() + 60
    while first.is_running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not first.is_running
    assert not first.is_complete


@pytest.mark.processes
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_the_rounds_and_the_same_command_goes_on(place: Path, fedotp: Fedotp, jobs: int) -> None:
    """A real process, a real signal to all of its group, as a terminal sends it."""
    words = ["sweep", "tiny.toml", "--grid", "method.mass=0.5,0.9", "--out", "here"]
    words += ["--set", "federation.rounds=60", "--set", "evaluation.every=0"]
    process = started(*words, "--jobs", jobs, stderr=subprocess.PIPE, start_new_session=True)
    first = RunDirectory("here/method.mass=0.5,seed=0")
    while process.poll() is None and not any(True for _ in first.metrics("round")):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("stopped, 2 of 2 runs are incomplete;")
    assert not first.is_complete
    done = fedotp(*words, "--quiet")
    assert done.status == 0
    assert [row["runs"] for row in table("here")] == ["1", "1"]
    assert [record["round"] for record in first.metrics("round")] == list(range(1, 61))


def test_the_bars_leave_the_terminal_as_it_was(place: Path) -> None:
    console = Console(force_terminal=True, width=80, file=open("screen", "w"))  # noqa: SIM115
    trials = by_method(load_config("tiny.toml"), ["promptfl", "zeroshot"], [0])
    with ManyBars(console) as bars:
        bars.on_encoding = lambda *_: None  # type: ignore[method-assign]
        run_many(trials, "here", observer=bars)
        bars.on_interrupt()
        bars._progress.refresh()
    console.file.close()
    screen = Path("screen").read_text()
    assert "all runs" in screen
    assert "2 of 2: zeroshot,seed=0, accuracy " in screen
    assert "Ctrl-C: finishing the rounds" in screen
    assert screen.count("\x1b[?25l") == screen.count("\x1b[?25h") == 1  # the cursor is back
