"""The demo with a busy neighbour on each core: how much longer its rounds take, and the whole command.

Two rounds of the federation of `fedotp demo`, alone and on two splits, as the command line runs them, in turn with
and without processes that count in a loop, one bound to each core. A fair share of a core beside one neighbour is a
half: twice the time is what fairness alone costs whoever uses all cores.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from fedotp.runs.directory import RunDirectory

_REPEATS = 3
_COMMANDS = {
    "one run": "run demo-sites --set federation.rounds=2 --quiet --out {out}",
    "two runs side by side": "compare demo-sites --methods fedotp --splits 0,1 --seeds 0 --set federation.rounds=2 "
    "--quiet --out {out}",
}
_BUSY = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def cannot_run() -> str | None:
    if torch.cuda.is_available():
        return "it measures the CPU"
    return None if hasattr(os, "sched_setaffinity") else "processes cannot be bound to cores here"


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, command in _COMMANDS.items():
        _measure(command)  # what is encoded once
        alone, beside = [], []
        for _ in range(_REPEATS):
            alone.append(_measure(command))
            with _neighbours():
                beside.append(_measure(command))
        for i, what in enumerate(("rounds", "the whole command")):
            one, other = (statistics.median(seconds[i] for seconds in some) for some in (alone, beside))
            figures[f"{name}, {what}: alone, seconds"] = one
            figures[f"{name}, {what}: with a busy neighbour on each core / alone"] = other / one
    return figures


def _measure(command: str) -> tuple[float, float]:
    """Seconds of the rounds' training, and of the whole command."""
    folder = Path(tempfile.mkdtemp())
    words = command.format(out=folder / "out").split()
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "fedotp", *words], check=True, capture_output=True)
    whole = time.perf_counter() - start
    runs = [RunDirectory(path.parent) for path in sorted(folder.rglob("summary.json"))]
    rounds = sum(run.summary["seconds"]["train"] for run in runs)
    shutil.rmtree(folder)
    return rounds, whole


@contextmanager
def _neighbours() -> Iterator[None]:
    """A process on each core that never waits."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY, str(core)]) for core in sorted(os.sched_getaffinity(0))]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
