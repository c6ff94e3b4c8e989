"""Flower's own commands: a SuperLink, SuperNodes, and `flwr run` of the app that comes with fedotp."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import fedotp.flower
from fedotp.flower.link._superlink import free_port

APP = Path(fedotp.flower.__file__).parent / "app"
_BIN = Path(sys.executable).parent


def environment(home: Path) -> dict[str, str]:
    """No telemetry, nothing installed at launch, one thread per process, Flower's files below `home`."""
    return {
        **os.environ,
        "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "FEDOTP_CACHE": str(home / "cache"),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",
    }


@contextmanager
def plain_flower(folder: Path, *, simulated: int = 0, sites: Mapping[str, str] = {}) -> Iterator["PlainFlower"]:
    """A SuperLink with `simulated` virtual sites, or a SuperNode for each of `sites` (name: node configuration)."""
    home = folder / "flower"
    home.mkdir(parents=True)
    port = free_port()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    flower = PlainFlower(folder, home, simulated)
    try:
        extra = ["--simulation"] if simulated else []
        flower.start("superlink", "flower-superlink", "--insecure", "--port", str(port), *extra)
        for name, config in sites.items():
            where = ["--superlink", f"127.0.0.1:{port}", "--port", str(free_port())]
            flower.start(name, "flower-supernode", "--insecure", *where, "--node-config", config)
        yield flower
    finally:
        flower.stop()


class PlainFlower:
    """Processes of Flower's own."""

    def __init__(self, folder: Path, home: Path, simulated: int) -> None:
        self._folder, self._home, self._simulated = folder, home, simulated
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str) -> None:
        with open(self._folder / f"{name}.log", "wb") as log:
            self._running.append(
                subprocess.Popen(
                    [str(_BIN / command[0]), *command[1:]],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment(self._home),
                    start_new_session=True,
                )
            )

    def run(self, config: Path, out: Path, seconds: float = 240, **options: object) -> None:
        """`flwr run` the app on a configuration, and wait until the run's directory is complete."""
        settings = {"config": str(config), "out": str(out), **options}
        given = " ".join(f"{key}={_toml(value)}" for key, value in settings.items())
        command = [str(_BIN / "flwr"), "run", str(APP), "here", "-c", given]
        if self._simulated:
            command += ["--federation-config", f"num-supernodes={self._simulated}"]
        end = time.monotonic() + seconds
        while subprocess.run(command, env=environment(self._home), capture_output=True, check=False).returncode:
            assert time.monotonic() < end, self.logs()  # the SuperLink is not up yet
            time.sleep(1)
        while not (out / "summary.json").exists():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.3)

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self._folder.glob("*.log")))

    def stop(self) -> None:
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, 15)
        for process in self._running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        for environ in Path("/proc").glob("[0-9]*/environ"):  # Flower detaches what it starts
            with suppress(OSError):
                if f"FLWR_HOME={self._home}\0".encode() in environ.read_bytes():
                    os.kill(int(environ.parent.name), 9)


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
