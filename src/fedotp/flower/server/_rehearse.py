"""`fedotp server --rehearse`: the whole federation on this machine, with made-up sites, before anybody else joins.

Server and sites are real processes that connect over TLS on the loopback interface, with keys, images and folders of
their own in a temporary folder. The run's directory, port and keys are not touched.
"""

import csv
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedotp._system import Interrupt, listen, n_cores
from fedotp._text import counted, one_line
from fedotp.classifier import has_name
from fedotp.config import Config, load_config
from fedotp.errors import FedotpError
from fedotp.flower.keys import ServerKeys, make_keys
from fedotp.flower.link import free_port
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.flower.server._supported import require_servable
from fedotp.flower.server._verify import verify_run
from fedotp.runs.directory import RunDirectory
from fedotp.runs.tables import n_bytes

_PROGRAM = ("-P", "-m", "fedotp")  # after the interpreter
_ROUNDS = 2
_CLASSES = ("first class", "second class")  # if none are given
_MOST_CLASSES = 20  # of a made-up site
_TRAIN, _TEST, _SIDE = 4, 2, 64  # images of a class at a site; pixels
_PAUSE = 0.2
_ENDING = 20.0  # seconds for the processes to end before they are killed
_UNIT = 1024 if sys.platform == "linux" else 1  # bytes, of ru_maxrss
_REFUSED = "was refused:"

Say = Callable[[str, str, str], object]
"""Called after every step with its name, its seconds, and a remark."""


def rehearse_run(
    settings: ServerSettings,
    keys: Path | None,
    most_sites: int,
    options: Sequence[str],
    say: Say,
    *,
    source: str,
    changes: Sequence[str],
    classes: tuple[str, ...],
) -> str:
    """Rehearse the federation of `run_server` with these arguments; return a summary, or raise FedotpError.

    `options` are the server's other options. At most `most_sites` sites are made up, with the names of the real ones.
    """
    config = load_config(source).override(list(changes))
    named = tuple(ServerKeys.read(keys).sites) if keys else tuple(f"site-{n}" for n in range(1, most_sites + 1))
    require_servable(config, settings, named if keys else ())
    names = [name for name in named if name not in config.federation.without][:most_sites]
    with tempfile.TemporaryDirectory(prefix="fedotp-rehearsal-") as folder, listen(lambda: None) as interrupt:
        rehearsal = _Rehearsal(Path(folder), _shortened(config, len(names)), classes or _CLASSES, names, say, interrupt)
        return rehearsal.run(options)


def _shortened(config: Config, n_sites: int) -> Config:
    """Return the configuration of a rehearsal: few rounds, all sites in each."""
    rounds = config.federation
    few = replace(
        rounds,
        rounds=min(rounds.rounds, _ROUNDS),
        participation=1.0,
        min_clients=min(rounds.min_clients, n_sites),
        without=(),
    )
    return replace(config, federation=few)


class _Process:
    """A process with a log; `largest` is the memory in bytes that it and its own processes needed at most."""

    def __init__(self, name: str, folder: Path, *arguments: object) -> None:
        self.name, self.log, self.largest = name, folder / f"{name}.log", 0
        self.status: int | None = None
        environment = {"OMP_NUM_THREADS": str(max(1, n_cores() // 2))} | dict(os.environ)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *_PROGRAM, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C must reach only this process, which ends the others
            )

    def has_ended(self) -> bool:
        """Collect the status and the largest memory of an ended process."""
        if self.status is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.status = self.process.returncode = os.waitstatus_to_exitcode(status)
                self.largest = _UNIT * usage.ru_maxrss
        return self.status is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it is running."""
        if not self.has_ended():
            os.kill(self.process.pid, number)

    def lines(self) -> list[str]:
        return [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]


class _Rehearsal:
    """A federation of made-up sites in a temporary folder."""

    def __init__(
        self, folder: Path, config: Config, classes: Sequence[str], names: Sequence[str], say: Say, interrupt: Interrupt
    ) -> None:
        self.folder, self.config, self.classes, self.names = folder, config, classes, names
        self._say, self._interrupt, self._began = say, interrupt, time.monotonic()
        self.processes: list[_Process] = []

    def run(self, options: Sequence[str]) -> str:
        """Make keys and images, run all processes, and verify the run."""
        port, run = free_port(), self.folder / "run"
        make_keys(self.folder / "keys", ["localhost"], self.names)
        self._done("keys", f"temporary, for {counted(len(self.names), 'made-up site')}")
        n = sum(self._make_images(number, name) for number, name in enumerate(self.names))
        self._done("images", f"{counted(n, 'made-up image')} of {counted(len(self.classes), 'class', 'classes')}")
        (self.folder / "study.toml").write_text(self.config.to_toml(), encoding="utf-8")
        (self.folder / "classes.txt").write_text("\n".join(self.classes), encoding="utf-8")
        with self._all():
            where = ["--keys", self.folder / "keys/server", "--host", "127.0.0.1", "--port", port, "--out", run]
            study = [self.folder / "study.toml", "--classes", self.folder / "classes.txt"]
            self._start("server", "server", *study, *where, *options)
            self._wait(lambda: any("listening at" in line for line in self.processes[0].lines()), "server started")
            for name in self.names:
                self._start_site(name, port)
            self._wait((run / "config.toml").is_file, "sites ready")
            for number in range(1, self.config.federation.rounds + 1):
                self._wait(lambda number=number: len(_rounds(run)) >= number, f"round {number}")  # type: ignore[misc]
            self._wait(self.processes[0].has_ended, "evaluation and end")
        return self._judge(RunDirectory.open(run))

    def _judge(self, run: RunDirectory) -> str:
        """Verify the run; return its summary."""
        server, *sites = self.processes
        lost = [f"{name}: {why}" for line in _rounds(run.path) for name, why in line.get("faults", {}).items()]
        found = verify_run(run.path, sorted(self.folder.glob("sites/*/transcripts/*.jsonl")))
        if wrong := [*lost, *found.wrong]:
            raise FedotpError(f"the rehearsal failed: {one_line(wrong[0])}")
        self._done("verified", f"{counted(found.repeated, 'round')} repeated, {counted(found.statements, 'statement')}")
        largest = n_bytes(max(site.largest for site in sites))
        self._say("memory of a site", largest, "the largest")
        self._say("memory of the server", n_bytes(server.largest), "")
        sent = run.summary["communication"]
        per_round = n_bytes((sent["bytes_up"] + sent["bytes_down"]) / max(found.rounds, 1))
        self._say("bytes per round", per_round, "from and to all sites")
        n_sites = counted(len(self.names), "made-up site")
        return f"{counted(found.rounds, 'round')} with {n_sites} over TLS; nothing was kept"

    # Parts --------------------------------------------------------------------------------------------------------

    def _start(self, name: str, *arguments: object) -> None:
        self.processes.append(_Process(name, self.folder, *arguments))

    def _start_site(self, name: str, port: int) -> None:
        keys, backbone = self.folder / "keys/sites" / name, self.config.backbone
        own = [] if has_name(backbone.name) else ["--backbone", backbone.source]
        place = ["--state", self.folder / "sites" / name, "--device", self.config.compute.device]
        data = ["--data", self.folder / "data" / name / "images.csv"]
        self._start(f"site {name}", "client", *data, "--keys", keys, "--server", f"localhost:{port}", *place, *own)

    def _make_images(self, number: int, name: str) -> int:
        """Write a table of noise around a colour per class, with a patient per image; return the number of images."""
        folder, rng = self.folder / "data" / name, np.random.default_rng(number)
        folder.mkdir(parents=True)
        some = [self.classes[(number + i) % len(self.classes)] for i in range(min(len(self.classes), _MOST_CLASSES))]
        rows = [("path", "label", "split", "group")]
        for label in some:
            colour = rng.integers(64, 192, 3)
            for split in ["train"] * _TRAIN + ["test"] * _TEST:
                pixels = colour + rng.integers(-64, 64, (_SIDE, _SIDE, 3))
                path = f"{len(rows)}.png"
                Image.fromarray(pixels.astype(np.uint8)).save(folder / path)
                rows.append((path, label, split, path))
        with open(folder / "images.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
        return len(rows) - 1

    def _wait(self, happened: Callable[[], bool], step: str) -> None:
        """Wait for something to happen; raise if a process fails or refuses to participate before."""
        server = self.processes[0]
        while not happened():
            if self._interrupt.wanted:
                raise KeyboardInterrupt
            refusals = [line for line in server.lines() if _REFUSED in line]
            if ended := next((each for each in self.processes if each.has_ended()), None):
                if ended is server and happened():
                    break
                raise self._failure(ended, ended.lines()[-1:] or [f"it ended with status {ended.status}"])
            if refusals:
                raise self._failure(server, refusals)
            time.sleep(_PAUSE)
        if server.status:
            raise self._failure(server, server.lines()[-1:])
        self._done(step, "")

    def _failure(self, process: _Process, lines: Sequence[str]) -> FedotpError:
        return FedotpError(f"the rehearsal failed: {process.name}: {one_line(lines[-1])}")

    def _done(self, step: str, remark: str) -> None:
        now = time.monotonic()
        self._say(step, f"{now - self._began:.1f} s", remark)
        self._began = now

    @contextmanager
    def _all(self) -> Iterator[None]:
        """End all processes at the end."""
        try:
            yield
        finally:
            try:
                for process in self.processes:
                    process.send(signal.SIGTERM)
                self._wait_for_all(_ENDING)
            finally:  # also after another Ctrl-C
                for process in self.processes:
                    process.send(signal.SIGKILL)
                self._wait_for_all(_ENDING)

    def _wait_for_all(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while any(not process.has_ended() for process in self.processes) and time.monotonic() < end:
            time.sleep(_PAUSE)


def _rounds(run: Path) -> list[dict[str, Any]]:
    """Return the rounds that a run has recorded; its last line may still be incomplete."""
    try:
        return list(RunDirectory(run).metrics("round"))
    except (FedotpError, ValueError):
        return []
