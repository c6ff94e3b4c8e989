"""What a round costs around the work itself: our simulator, Flower's simulation, and real sites on Flower.

The same federation each time: three clients of the demo's backbone and images, one local epoch, no evaluation between
rounds; every process has one thread. Seconds are the median over the rounds after the first. "fedotp server and
client" are real processes with TLS and keys on the loopback interface; "Flower's own commands" are the same app on
`flower-superlink` and `flower-supernode`, which start a process for every message.
"""

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fedotp
from fedotp.runs.directory import RunDirectory

_ROUNDS = 6
_NAMES = ("one", "two", "three")
_FEDOTP = "from fedotp.cli import main; main()"


def cannot_run() -> str | None:
    missing = [name for name in ("flwr", "ray") if importlib.util.find_spec(name) is None]
    return f"{missing[0]} is not installed" if missing else None


def run() -> dict[str, float]:
    from tests.flower.plain_flower import plain_flower

    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = fedotp.load_config("demo").override(
            [
                f"federation.rounds={_ROUNDS}",
                "partition.n_clients=3",
                "evaluation.every=0",
                f"data.store={folder}/tokens",
            ]
        )
        (folder / "study.toml").write_text(config.to_toml())
        code = f"{_ONE_THREAD}fedotp.run(fedotp.load_config('study.toml'), {{!r}})"
        started: dict[str, float] = {}
        for out in ("encode", "simulator"):
            with _timed(started, out):
                subprocess.run([sys.executable, "-c", code.format(out)], cwd=folder, check=True)
        with _timed(started, "flower-simulation"), plain_flower(folder / "simulated", simulated=3) as flower:
            flower.run(folder / "study.toml", folder / "flower-simulation")
        with _timed(started, "sites"):
            _deploy(folder)
        parts = {site: f'part={part} name="{site}" state="{folder}/plain/{site}"' for part, site in enumerate(_NAMES)}
        with _timed(started, "flower-sites"), plain_flower(folder / "deployed", sites=parts) as flower:
            flower.run(folder / "study.toml", folder / "flower-sites", seconds=500, **{"min-sites": 3})
        seconds = {key: _round_seconds(folder / key) for key in started if key != "encode"}
    figures = {f"{_TITLES[key]}: seconds per round": value for key, value in seconds.items()}
    figures |= {
        f"{_TITLES[key]}: times the simulator's round": value / seconds["simulator"]
        for key, value in seconds.items()
        if key != "simulator"
    }
    return figures | {
        f"{_TITLES[key]}: from the command to the end, {_ROUNDS} rounds, seconds": started[key] for key in seconds
    }


_ONE_THREAD = "import fedotp, torch; torch.set_num_threads(1); "
_TITLES = {
    "simulator": "fedotp's simulator",
    "flower-simulation": "Flower's simulation",
    "sites": "fedotp server and client",
    "flower-sites": "Flower's own commands",
}


@contextmanager
def _timed(seconds: dict[str, float], key: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[key] = time.perf_counter() - start


def _round_seconds(run: Path) -> float:
    return statistics.median(record["seconds"] for record in list(RunDirectory.open(run).metrics("round"))[1:])


def _deploy(folder: Path) -> None:
    """Three sites with keys."""
    from fedotp.flower.keys import make_keys
    from fedotp.flower.link._superlink import free_port

    make_keys(folder / "keys", ["localhost"], _NAMES)
    port = free_port()
    listen = ["--keys", "keys/server", "--host", "127.0.0.1", "--port", str(port), "--out", "sites"]
    processes = [_start(folder, "server", "server", "study.toml", *listen)]
    for part, site in enumerate(_NAMES):
        where = ["--server", f"localhost:{port}", "--state", f"state/{site}", "--keys", f"keys/sites/{site}"]
        processes.append(_start(folder, site, "client", "--part", str(part), *where))
    try:
        if processes[0].wait(500):
            raise RuntimeError((folder / "server.log").read_text()[-2000:])
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _start(folder: Path, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", _FEDOTP, *arguments], cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
