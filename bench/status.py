"""What the status page costs a server: rounds of 24 real sites with and without a browser that polls it.

Processes with TLS and keys on the loopback interface, on the demo's backbone and images, one thread each. In every
second block of rounds the page's requests (status.json, /metrics, the page itself) are made once a second. The ratio of
round times is the geometric mean over pairs of neighbouring blocks, with a 95 % interval of Student's t; the order
within the pairs alternates. Memory is the server's resident set after the first and the last round that counts.
"""

import importlib.util
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fedotp
from bench.flower import _start
from fedotp.runs.directory import RunDirectory

SITES, ROUNDS = 24, 50
WARM_UP = 2  # rounds before those that count
BLOCK = 2  # rounds
EVERY = 1.0  # seconds between polls
_PATIENCE = 3600.0  # seconds for everything


def cannot_run() -> str | None:
    missing = [name for name in ("flwr", "scipy") if importlib.util.find_spec(name) is None]
    return f"{missing[0]} is not installed" if missing else None


def run() -> dict[str, float]:
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name, _federation(Path(name)) as (server, page):
        return _watch(Path(name) / "run", server, page)


@contextmanager
def _federation(folder: Path) -> Iterator[tuple[Any, str]]:
    """The server's process and the address of its page; ends all processes."""
    from fedotp.flower.keys import make_keys
    from fedotp.flower.link._superlink import free_port

    config = fedotp.load_config("demo").override(
        [
            f"federation.rounds={WARM_UP + ROUNDS}",
            "partition.scheme=dirichlet",
            f"partition.n_clients={SITES}",
            "evaluation.every=10",
            f"data.store={folder}/tokens",
        ]
    )
    (folder / "study.toml").write_text(config.to_toml())
    names = [f"site-{number}" for number in range(SITES)]
    make_keys(folder / "keys", ["localhost"], names)
    port, page = free_port(), f"127.0.0.1:{free_port()}"
    listen = ["--keys", "keys/server", "--host", "127.0.0.1", "--port", str(port), "--out", "run", "--status", page]
    processes = [_start(folder, "server", "server", "study.toml", *listen)]
    for part, site in enumerate(names):
        where = ["--server", f"localhost:{port}", "--state", f"state/{site}", "--keys", f"keys/sites/{site}"]
        processes.append(_start(folder, site, "client", "--part", str(part), *where))
    try:
        yield processes[0], f"http://{page}/"
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def is_polled(round_: int) -> bool:
    """True for one block of each pair: the second of the first pair, the first of the second, and so on."""
    pair, second = divmod((round_ - WARM_UP - 1) // BLOCK, 2)
    return round_ > WARM_UP and bool(second) == (pair % 2 == 0)


def _watch(path: Path, server: Any, page: str) -> dict[str, float]:
    """Poll during the rounds of polled blocks until the server ends."""
    import httpx

    polls: list[float] = []
    memory: dict[int, float] = {}
    end = time.monotonic() + _PATIENCE
    with httpx.Client() as client:
        while server.poll() is None:
            if time.monotonic() > end:
                raise RuntimeError("the federation did not end")
            done = _rounds(path)
            memory.setdefault(len(done), _resident(server.pid))
            if is_polled(len(done) + 1) and len(done) < WARM_UP + ROUNDS:  # later the server may have ended
                start = time.perf_counter()
                for request in ("status.json", "metrics", ""):
                    client.get(f"{page}{request}").raise_for_status()
                polls.append(time.perf_counter() - start)
                time.sleep(max(0.0, EVERY - polls[-1]))
            else:
                time.sleep(0.2)
    if server.returncode:
        raise RuntimeError((path.parent / "server.log").read_text()[-2000:])
    seconds = _rounds(path)
    ratio, low, high = ratio_of(seconds)
    last = max(number for number in memory if number < len(seconds))
    return {
        f"{SITES} sites, {ROUNDS} rounds: round time with polling / without": ratio,
        "lower end of the 95 % interval": low,
        "upper end of the 95 % interval": high,
        "seconds per round, median": statistics.median(seconds[WARM_UP:]),
        "polls": len(polls),
        "milliseconds of a poll (3 requests), median": 1000 * statistics.median(polls),
        f"server's memory after round {WARM_UP}, MiB": memory[WARM_UP],
        f"server's memory after round {last}, MiB": memory[last],
    }


def ratio_of(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Ratio of round times in polled blocks to those in their neighbours, and its interval."""
    from scipy.stats import t

    counted = list(enumerate(seconds, 1))[WARM_UP:]
    pairs = [counted[at : at + 2 * BLOCK] for at in range(0, len(counted) - 2 * BLOCK + 1, 2 * BLOCK)]
    logs = [
        sum(math.log(value) if is_polled(number) else -math.log(value) for number, value in pair) / BLOCK
        for pair in pairs
    ]
    mean, half = statistics.fmean(logs), t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _rounds(path: Path) -> list[float]:
    """Seconds of the rounds so far."""
    if not (path / "metrics.jsonl").is_file():
        return []
    return [record["seconds"] for record in RunDirectory(path).metrics("round")]


def _resident(pid: int) -> float:
    """Resident memory in MiB; Linux only."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
