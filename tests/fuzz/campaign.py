"""Many cases in worker processes that may hang, crash and be killed."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.reader import Reader
from fuzz.worker import CASE

_CPU_SECONDS = 20.0  # of computing for one case
_WALL_SECONDS = 60.0  # a case may take when it computes nothing, as one that waits for a pipe
_WARM_SECONDS = 600.0
_LOOK = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Tally:
    """What came of the cases of one reader; findings are numbers of cases and why."""

    cases: int = 0
    read: int = 0
    refused: int = 0
    findings: list[tuple[int, str]] = field(default_factory=list)
    _shown: int = 0

    def new_findings(self) -> list[tuple[int, str]]:
        """Those since the last call."""
        found, self._shown = self.findings[self._shown :], len(self.findings)
        return found


class Worker:
    """A process that reads; when it is lost, the next case gets a new one."""

    def __init__(self, seeds: Path, scratch: Path, seed: int = 0, *, readers: str = "fuzz.readers") -> None:
        """Nothing is started yet; a case may compute for `cpu` seconds and take `wall` in all."""
        options = {"--seeds": seeds, "--scratch": scratch, "--seed": seed, "--readers": readers}
        words = [str(word) for pair in options.items() for word in pair]
        self._command = [sys.executable, "-m", "fuzz.worker", *words]
        self._scratch, self.cpu, self.wall = scratch, _CPU_SECONDS, _WALL_SECONDS
        self._process: subprocess.Popen[bytes] | None = None
        self._warm: set[str] = set()

    def __enter__(self) -> "Worker":
        """Itself."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._end()

    @property
    def case_folder(self) -> Path:
        """The folder of the last case."""
        return self._scratch / CASE

    def ask(self, reader: str, case: int) -> tuple[str, str]:
        """Read one case: the outcome and why."""
        if reader not in self._warm:
            answer = self._exchange({"warm": reader}, _WARM_SECONDS, _WARM_SECONDS)
            if answer["outcome"] != "read":
                return answer["outcome"], answer["why"]
            self._warm.add(reader)
        answer = self._exchange({"reader": reader, "case": case}, self.cpu, self.wall)
        return answer["outcome"], answer["why"]

    def _exchange(self, order: dict[str, object], cpu: float, wall: float) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=_environment()
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        end, busy = time.monotonic() + wall, _cpu_seconds(process.pid) + cpu
        while not select.select([process.stdout], [], [], _LOOK)[0]:
            if _cpu_seconds(process.pid) > busy:
                return self._lost(f"hang: it computes for more than {cpu:g} s")
            if time.monotonic() > end:
                return self._lost(f"hang: no end within {wall:g} s")
        line = process.stdout.readline()
        if not line:
            process.wait()
            code = process.returncode
            return self._lost(f"crash: {signal.Signals(-code).name if code < 0 else f'exit status {code}'}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _lost(self, why: str) -> dict[str, Any]:
        self._end()
        output = self._scratch / "output.txt"
        said = output.read_text(errors="replace")[-3000:] if output.is_file() else ""
        return {"outcome": "finding", "why": f"{why}\n{said}"}

    def _end(self) -> None:
        process, self._process, self._warm = self._process, None, set()
        if process is not None:
            process.kill()
            process.communicate()


def run(
    readers: Sequence[Reader], worker: Worker, *, cases: int, first: int = 0, keep: Path | None = None
) -> Iterator[tuple[str, Tally]]:
    """Give every reader its share of `cases`; yields the name and the tally of a reader after each of its cases."""
    share, more = divmod(cases, len(readers))
    for i, reader in enumerate(readers):
        tally = Tally()
        for number in range(first, first + share + (i < more)):
            outcome, why = worker.ask(reader.name, number)
            tally.cases += 1
            tally.read += outcome == "read"
            tally.refused += outcome == "refused"
            if outcome == "finding":
                tally.findings.append((number, why))
                if keep is not None:
                    _keep(worker.case_folder, keep / f"{reader.name}-{number}", why)
            yield reader.name, tally


def _keep(case: Path, target: Path, why: str) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(case, target / CASE, symlinks=True, ignore=_no_pipes, ignore_dangling_symlinks=True)
    (target / "finding.txt").write_text(why)


def _no_pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_fifo()]


def _cpu_seconds(pid: int) -> float:
    """What a process has computed so far, its threads included."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _environment() -> dict[str, str]:
    """Of a worker: no network, one thread, the modules of this process."""
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": "0", "NO_COLOR": "1"}
    return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
