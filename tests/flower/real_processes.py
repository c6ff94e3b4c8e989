"""`fedotp server` and `fedotp client` as processes, on the loopback interface."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fedotp.config import Config
from fedotp.flower.keys import make_keys
from fedotp.flower.link._superlink import free_port
from fedotp.runs.directory import RunDirectory

_FEDOTP = "from fedotp.cli import main; main()"
_WITH_TRAIN = """
from fedotp.flower.site._site import Site
honest = Site.train
def train(self, agreement, number, round_, *rest):
    {}
    return done
Site.train = train
"""


def training(*lines: str) -> str:
    """The command of a site that trains with these lines; `honest` is the real method, of these arguments."""
    return _WITH_TRAIN.format("\n    ".join(lines)) + _FEDOTP


@dataclass
class Processes:
    """Starts processes in `folder`, each with a log, and ends what is left at the end."""

    folder: Path
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def start(
        self, name: str, *arguments: object, code: str = _FEDOTP, environment: Mapping[str, str] | None = None
    ) -> None:
        own = {"OMP_NUM_THREADS": "1", "FEDOTP_CACHE": str(self.folder / "cache")}
        own["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        with open(self.log_path(name), "ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-c", code, *map(str, arguments)],
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own, **(environment or {})},
            )

    def start_server(self, port: int, *options: object, code: str = _FEDOTP) -> None:
        """With keys, on study.toml; wait until it listens."""
        where = ["--keys", "keys/server", "--host", "127.0.0.1", "--port", port]
        self.start("server", "server", "study.toml", "--out", "run", *where, *options, code=code)
        self.until(lambda: "listening" in self.log("server"))

    def start_site(self, part: int, name: str, port: int, *options: object, code: str = _FEDOTP) -> None:
        """With its key, on a part of the study's images."""
        where = ["--keys", f"keys/sites/{name}", "--server", f"localhost:{port}", "--state", f"state/{name}"]
        self.start(name, "client", "--part", part, *where, *options, code=code)

    def kill(self, name: str) -> None:
        """As a power cut would."""
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait()

    def wait(self, name: str, seconds: float = 300) -> int:
        """The exit status, when it has ended by itself."""
        try:
            return self.running[name].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} did not end:\n{self.all_logs()}") from None

    def stop_waiting(self, name: str, number: signal.Signals) -> None:
        """A server that waits for sites is stopped, and says that nothing was made."""
        self.running[name].send_signal(number)
        assert self.wait(name) == 130, self.all_logs()
        assert "stopped before the first round: no run was created" in self.log(name)
        assert "Traceback" not in self.log(name)

    def until(self, happened: Callable[[], bool], seconds: float = 250) -> None:
        """Wait for something to happen while all processes are watched."""
        end = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < end, f"it did not happen:\n{self.all_logs()}"
            time.sleep(0.2)

    def log_path(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        return self.log_path(name).read_text() if self.log_path(name).exists() else ""

    def all_logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.terminate()
        for process in self.running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def make_study(folder: Path, config: Config, sites: Iterable[str]) -> int:
    """A configuration and keys for the processes of a federation; the port of its server."""
    (folder / "study.toml").write_text(config.to_toml())
    make_keys(folder / "keys", ["localhost"], list(sites))
    return free_port()


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    started = Processes(folder)
    try:
        yield started
    finally:
        started.stop()


def rounds_done(run: Path) -> int:
    """How many rounds a run has written down."""
    try:
        return max((record["round"] for record in RunDirectory(run).metrics("round")), default=0)
    except json.JSONDecodeError:
        return 0
