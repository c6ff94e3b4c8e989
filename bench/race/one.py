"""One engine in a process of its own: `python -m bench.race.one ENGINE WORK RESULT`, the latter two JSON and a path."""

import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.race.work import Work

COMPARED = 3  # rounds after which prompts must be equal


class Clock:
    """Seconds of each round, by the clock on the wall and of all processors, and the prompts before and after."""

    def __init__(self) -> None:
        self.ready = 0.0
        self.prompts: list[Tensor] = []
        self.seconds: list[float] = []
        self.processor: list[float] = []
        self._begun: tuple[float, float] | None = None

    def __call__(self, shared: Tensor) -> None:
        if shared.is_cuda:
            torch.cuda.synchronize()
        now, used = time.perf_counter(), _processor_seconds()
        if self._begun:
            self.seconds.append(now - self._begun[0])
            self.processor.append(used - self._begun[1])
        self.ready = self.ready or time.time()
        self.prompts.append(shared.detach().cpu().clone())
        self.peak = _peak_mib()
        self._begun = time.perf_counter(), used


def race(engine: str, work: Work) -> dict[str, Any]:
    clock = Clock()
    if engine != "flower":  # its server needs no images
        work.read(torch.arange(1))  # reading the images is part of the start
    importlib.import_module(f"bench.race.{engine}").run(work, clock)
    first, *_, last = clock.prompts[: COMPARED + 1]
    packages = ["torch", *{"flower": ["flwr", "ray"], "pfl": ["pfl"]}.get(engine, [])]
    return {
        "ready": clock.ready,
        "seconds": clock.seconds,
        "processor": clock.processor,
        "MiB": clock.peak,
        "prompt": last.flatten().tolist(),
        "moved": float((last - first).abs().max()),
        "versions": {"python": platform.python_version(), **{package: version(package) for package in packages}},
    }


def _processes() -> Iterator[Path]:
    """Yield the folders in /proc of this process and its descendants."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has ended
            found[stat.parent.name] = stat.read_text().rpartition(")")[2].split()[1]
    mine = {Path("/proc/self").resolve().name}
    while more := {process for process, parent in found.items() if parent in mine} - mine:
        mine |= more
    yield from (Path("/proc") / process for process in mine)


def _peak_mib() -> float:
    """Return the sum of the processes' largest resident memory, without pages of files and of shared memory."""
    total = 0
    for process in _processes():
        with suppress(OSError, KeyError):
            facts = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
            most, *shared = (int(facts[name].split()[0]) for name in ("VmHWM", "RssFile", "RssShmem"))
            total += most - sum(shared)
    return total / 1024


def _processor_seconds() -> float:
    """Return the processor time of the processes."""
    total = 0
    for process in _processes():
        with suppress(OSError):
            user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
            total += int(user) + int(system)
    return total / os.sysconf("SC_CLK_TCK")


def main() -> None:
    engine, spec, result = sys.argv[1:]
    work = Work(**json.loads(spec))
    torch.set_num_threads(work.threads)
    Path(result).write_text(json.dumps(race(engine, work)))


if __name__ == "__main__":
    main()
