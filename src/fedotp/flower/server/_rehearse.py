"""`fedotp server --rehearse`: the whole federation on this machine, with made-up sites, before anybody else joins.

Server and sites are real processes that connect over TLS on the loopback interface; their keys, images and files are in
a temporary folder.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from fedotp._system import Interrupt, listen, n_cores
from fedotp._text import counted, one_line
from fedotp.classifier import has_name
from fedotp.config import Config, load_config
from fedotp.errors import FedotpError
from fedotp.flower.keys import ServerKeys, make_keys
from fedotp.flower.link import ConnectionLimits, Listener
from fedotp.flower.server._server_settings import ServerSettings
from fedotp.flower.server._supported import require_servable
from fedotp.flower.server._verify import verify_run
from fedotp.runs.directory import RunDirectory
from fedotp.runs.tables import n_bytes

_PROGRAM = ("-P", "-m", "fedotp")  # Python's options
_ROUNDS = 2
_CLASSES = ("first class", "second class")  # if none are given
_MOST_CLASSES = 20  # of a made-up site
_TRAIN, _TEST, _SIDE = 4, 2, 64  # images of a class at a site; pixels
_PAUSE = 0.2
_ENDING = 20.0  # seconds for the processes to end before they are killed
_UNIT = 1024 if sys.platform == "linux" else 1  # bytes, of ru_maxrss
_LISTENING, _REFUSED, _CAUSE = "listening at", "was refused:", "request refused:"  # the last, in a site's log

Say = Callable[[str, str, str], object]
"""Receives each step: its name, its seconds (or bytes), and a remark."""


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
    names = tuple(ServerKeys.read(keys).sites) if keys else ()
    require_servable(config, settings, names)
    names = names or tuple(f"site-{n}" for n in range(1, most_sites + 1))
    names = tuple(name for name in names if name not in config.federation.without)[:most_sites]
    rounds, least = min(config.federation.rounds, _ROUNDS), min(config.federation.min_clients, len(names))
    few = replace(config.federation, rounds=rounds, min_clients=least, participation=1.0, without=())
    with TemporaryDirectory(prefix="fedotp-rehearsal-") as folder:
        rehearsal = _Rehearsal(Path(folder), replace(config, federation=few), classes or _CLASSES, names, say)
        return rehearsal.run(options)


class _Process:
    """A fedotp process with a log; `largest` is the most memory in bytes that it used, once it has ended."""

    def __init__(self, name: str, folder: Path, *arguments: object) -> None:
        self.name, self._log, self.largest = name, folder / f"{name}.log", 0
        self.status: int | None = None
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, *_PROGRAM, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"OMP_NUM_THREADS": str(max(1, n_cores() // 2)), **os.environ},
                start_new_session=True,  # Ctrl-C must reach only this process, which ends the others
            )

    def has_ended(self) -> bool:
        if self.status is None:
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                self.status = self._process.returncode = os.waitstatus_to_exitcode(status)
                self.largest = _UNIT * usage.ru_maxrss
        return self.status is not None

    def send(self, number: signal.Signals) -> None:
        if not self.has_ended():
            os.kill(self._process.pid, number)

    def lines(self, words: str = "") -> list[str]:
        return [line for line in self._log.read_text(errors="replace").splitlines() if line.strip() and words in line]

    def failure(self, words: str = "") -> FedotpError:
        """Return the error with the last line of the log."""
        last = [f"ended with status {self.status}", *self.lines(words)][-1]
        return FedotpError(f"the rehearsal failed: {self.name}: {one_line(last)}")


class _Rehearsal:
    """A federation of made-up sites in a temporary folder."""

    def __init__(self, folder: Path, config: Config, classes: Sequence[str], names: Sequence[str], say: Say) -> None:
        self.folder, self.config, self.classes, self.names, self._say = folder, config, classes, names, say
        self._began, self._interrupt = time.monotonic(), Interrupt()
        self.processes: list[_Process] = []

    def run(self, options: Sequence[str]) -> str:
        """Make keys and images, run all processes, and verify the run."""
        folder, run = self.folder, RunDirectory(self.folder / "run")
        free = Listener(ConnectionLimits(), "127.0.0.1", 0)
        free.close()
        port = free.port
        make_keys(folder / "keys", ["localhost"], self.names)
        n_images = sum(self._make_images(number, name) for number, name in enumerate(self.names))
        self._done("keys and images", f"{counted(len(self.names), 'made-up site')}, {counted(n_images, 'image')}")
        (folder / "study.toml").write_text(self.config.to_toml(), encoding="utf-8")
        (folder / "classes.txt").write_text("\n".join(self.classes), encoding="utf-8")
        where = ["--keys", folder / "keys/server", "--host", "127.0.0.1", "--port", port, "--out", run.path]
        with listen(lambda: None) as self._interrupt, ExitStack() as stack:
            stack.callback(self._end)
            study = [folder / "study.toml", "--classes", folder / "classes.txt"]
            server = self._start("server", "server", *study, *where, *options)
            self._wait("server started", lambda: bool(server.lines(_LISTENING)))
            sites = [self._start_site(name, port) for name in self.names]
            self._wait("sites ready", lambda: run.is_begun)
            for number in range(1, self.config.federation.rounds + 1):
                self._wait(f"round {number}", lambda n=number: len(list(run.metrics("round"))) >= n)  # type: ignore[misc]
            self._wait("evaluation and end", lambda: server.has_ended() and server.status == 0)
        found = verify_run(run.path, sorted(folder.glob("sites/*/transcripts/*.jsonl")))
        lost = [f"{name}: {why}" for line in run.metrics("round") for name, why in line.get("faults", {}).items()]
        if wrong := [*lost, *found.wrong]:
            raise FedotpError(f"the rehearsal failed: {one_line(wrong[0])}")
        self._done("verified", f"{counted(found.repeated, 'round')}, {counted(found.statements, 'signed statement')}")
        sent = run.summary["communication"]
        self._say("memory of a site", n_bytes(max(site.largest for site in sites)), "the largest")
        self._say("memory of the server", n_bytes(server.largest), "")
        per_round = (sent["bytes_up"] + sent["bytes_down"]) / max(found.rounds, 1)
        self._say("bytes per round", n_bytes(per_round), "to and from all sites")
        return f"{counted(found.rounds, 'round')} with {counted(len(self.names), 'made-up site')} over TLS"

    def _start(self, name: str, *arguments: object) -> _Process:
        self.processes.append(_Process(name, self.folder, *arguments))
        return self.processes[-1]

    def _start_site(self, name: str, port: int) -> _Process:
        backbone, state = self.config.backbone, self.folder / "sites" / name
        own: list[object] = [] if has_name(backbone.name) else ["--backbone", backbone.source]
        own += ["--device", self.config.compute.device, "--state", state, "--keys", self.folder / "keys/sites" / name]
        data = self.folder / "data" / name / "images.csv"
        return self._start(f"site {name}", "client", "--data", data, "--server", f"localhost:{port}", *own)

    def _make_images(self, number: int, name: str) -> int:
        """Make noise around a colour for each class, of a patient per image; return the number of images."""
        folder, rng = self.folder / "data" / name, np.random.default_rng(number)
        folder.mkdir(parents=True)
        rows = ["path,label,split,group"]
        for i in range(min(len(self.classes), _MOST_CLASSES)):
            label = self.classes[(number + i) % len(self.classes)].replace('"', '""')
            colour = rng.integers(64, 192, 3)
            for split in ["train"] * _TRAIN + sorted({"test", self.config.data.test_split}) * _TEST:
                pixels, path = colour + rng.integers(-64, 64, (_SIDE, _SIDE, 3)), f"{len(rows)}.png"
                Image.fromarray(pixels.astype(np.uint8)).save(folder / path)
                rows.append(f'{path},"{label}",{split},{path}')
        (folder / "images.csv").write_text("\n".join(rows), encoding="utf-8")
        return len(rows) - 1

    def _wait(self, step: str, happened: Callable[[], bool]) -> None:
        """Wait for something to happen, or for the run's end; raise if the server refuses a site or a process ends."""
        while not happened():
            if self._interrupt.wanted:
                raise KeyboardInterrupt
            if (server := self.processes[0]).lines(_REFUSED):
                site = next((each for each in self.processes[1:] if each.lines(_CAUSE)), None)  # may know more
                raise site.failure(_CAUSE) if site else server.failure(_REFUSED)
            ended = next((process for process in self.processes if process.has_ended()), None)
            if ended and not happened():
                if ended is not server or server.status:
                    raise ended.failure()
                return  # fewer rounds: of the method, or of the privacy budget
            time.sleep(_PAUSE)
        self._done(step, "")

    def _done(self, step: str, remark: str) -> None:
        now = time.monotonic()
        self._say(step, f"{now - self._began:.1f} s", remark)
        self._began = now

    def _end(self) -> None:
        """End all processes, also if another Ctrl-C interrupts the wait for them."""
        try:
            self._signal(signal.SIGTERM)
        finally:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        end = time.monotonic() + _ENDING
        for process in self.processes:
            process.send(number)
        while any(not process.has_ended() for process in self.processes) and time.monotonic() < end:
            time.sleep(_PAUSE)
