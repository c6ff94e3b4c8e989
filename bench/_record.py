"""Timing side by side, and writing down what was measured where."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def medians(candidates: dict[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """Median seconds of each candidate. They take turns, so that a busy moment hits all of them."""
    return medians_by_clock(candidates, repeats)[0]


def medians_by_clock(
    candidates: dict[str, Callable[[], object]], repeats: int = 7
) -> tuple[dict[str, float], dict[str, float]]:
    """The same by the clock on the wall, and by the processor's, which other work on a busy machine does not drive."""
    for run in candidates.values():
        run()
    clocks = (time.perf_counter, time.process_time)
    times: dict[str, list[list[float]]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, run in candidates.items():
            start = [clock() for clock in clocks]
            run()
            times[name].append([clock() - begun for clock, begun in zip(clocks, start, strict=True)])
    wall, processor = ({name: statistics.median(t[i] for t in each) for name, each in times.items()} for i in range(2))
    return wall, processor


def machine() -> dict[str, str | int]:
    """What a reader needs to know to compare figures."""
    facts: dict[str, str | int] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": _cpu_name(),
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def save(name: str, figures: Mapping[str, object], program: str = "bench") -> Path:
    """Write bench/results/<name>-<cpu or gpu>.json and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{'gpu' if torch.cuda.is_available() else 'cpu'}.json"
    record = {
        "command": " ".join([f"python -m {program}", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "figures": figures,
    }
    path.write_text(json.dumps(record, indent=2) + "\n")
    return path


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@lru_cache
def commit() -> str:
    """The commit measured, with "+changes" if the tree differed from it at the first call (a record changes it).

    A copy on a lent machine has no history, or an older one: BENCH_COMMIT says what it is a copy of.
    """
    if "BENCH_COMMIT" in os.environ:
        return os.environ["BENCH_COMMIT"]
    root = Path(__file__).parent
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+changes"],
            cwd=root, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip()
