"""One engine in a process of its own: `python -m bench.race.one ENGINE WORK RESULT`, the latter two JSON and a path."""

import importlib
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.race.work import Work

COMPARED = 3  # rounds after which prompts must be equal


class Clock:
    """Moments and prompts at the start and after each round; the memory of all processes after the last."""

    def __init__(self, rounds: int) -> None:
        self.ready = 0.0
        self.prompts: list[Tensor] = []
        self.mib = 0.0
        self._moments: list[float] = []
        self._rounds = rounds

    def __call__(self, shared: Tensor) -> None:
        if shared.is_cuda:
            torch.cuda.synchronize()
        self._moments.append(time.perf_counter())
        self.ready = self.ready or time.time()
        self.prompts.append(shared.detach().cpu().clone())
        if len(self._moments) > self._rounds:
            self.mib = _peak_mib()

    @property
    def seconds(self) -> list[float]:
        return [b - a for a, b in zip(self._moments[:-1], self._moments[1:], strict=True)]


def race(engine: str, work: Work) -> dict[str, Any]:
    clock = Clock(work.rounds)
    work.read(torch.arange(1))  # reading the images is part of the start
    importlib.import_module(f"bench.race.{engine}").run(work, clock)
    first, *_, last = clock.prompts[: COMPARED + 1]
    package = {"flower": "flwr", "pfl": "pfl"}.get(engine)
    return {
        "ready": clock.ready,
        "seconds": clock.seconds,
        "MiB": clock.mib,
        "prompt": last.flatten().tolist(),
        "moved": float((last - first).abs().max()),
        "versions": {"torch": torch.__version__, **({package: version(package)} if package else {})},
    }


def _peak_mib() -> float:
    """Sum over this process and its descendants of the largest resident memory; shared pages count for each."""
    parents, peaks = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            facts = dict(line.split(":", 1) for line in status.read_text().splitlines())
            parents[int(facts["Pid"])] = int(facts["PPid"])
            peaks[int(facts["Pid"])] = int(facts.get("VmHWM", "0 kB").split()[0]) / 1024
        except OSError:
            continue  # the process has ended
    mine = {int(Path("/proc/self").resolve().name)}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(peaks[pid] for pid in mine)


def main() -> None:
    engine, spec, result = sys.argv[1:]
    work = Work(**json.loads(spec))
    torch.set_num_threads(work.threads)
    Path(result).write_text(json.dumps(race(engine, work)))


if __name__ == "__main__":
    main()
