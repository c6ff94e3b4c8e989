"""What can happen to a federation, one thing at a time."""

import os
import random
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from real_processes import Processes
from stalling_proxy import StallingProxy

_CLOCK = Path(__file__).parent / "clock"


@dataclass
class Federation:
    """The processes of a federation: how each is started, the links between them, and their clocks."""

    processes: Processes
    port: int
    start: dict[str, Callable[[], None]]
    links: dict[str, StallingProxy]
    rng: random.Random
    longest: float
    over: Callable[[], bool]
    sites: tuple[str, ...] = ()
    done: list[tuple[str, float]] = field(default_factory=list)

    def pause(self, seconds: float) -> None:
        """Let time pass, unless the run is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.over():
            time.sleep(0.2)

    def length(self) -> float:
        """Seconds for which something is stalled or asleep: short ones are as frequent as long ones."""
        return float(5 * (self.longest / 5) ** self.rng.random()) if self.longest > 5 else self.longest

    def pids(self, name: str) -> list[int]:
        """A process and what it started."""
        pid = self.processes.running[name].pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        threads = Path(f"/proc/{pid}/task").glob("*/children") if children.parent.is_dir() else []
        found = []
        for path in threads:
            with suppress(OSError):  # a thread that has just ended
                found += [int(child) for child in path.read_text().split()]
        return [pid, *found]

    def set_clock(self, name: str, seconds: float) -> None:
        """Set a process's clock so far ahead of the machine's."""
        (self.processes.folder / f"{name}.clock").write_text(f"{seconds:+.0f}")


def clocked(folder: Path, name: str) -> dict[str, str]:
    """The environment of a process whose clock can be set."""
    return {
        "CAMPAIGN_CLOCK": str(folder / f"{name}.clock"),
        "PYTHONPATH": os.pathsep.join([str(_CLOCK), *(path for path in sys.path if path)]),
    }


def _kill(these: Federation, name: str) -> float:
    these.processes.kill(name)
    these.pause(these.rng.choice((0, 1, 10)))
    these.start[name]()
    return 0.0


def _sleep(these: Federation, *names: str) -> float:
    seconds = these.length()
    pids = [pid for name in names for pid in these.pids(name)]
    _signal(pids, signal.SIGSTOP)
    try:
        these.pause(seconds)
    finally:
        _signal(pids, signal.SIGCONT)
    return seconds


def processors_starve(these: Federation) -> float:
    """Of the server and the sites one runs at a time, for a moment, and none in between: some percent of a core."""
    seconds, names = these.length(), ["server", *these.sites]
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end and not these.over():
            for name in names:
                _signal(these.pids(name), signal.SIGSTOP)
            time.sleep(these.rng.uniform(0.1, 1.0))
            _signal(these.pids(these.rng.choice(names)), signal.SIGCONT)
            time.sleep(these.rng.uniform(0.02, 0.3))
    finally:
        for name in names:
            _signal(these.pids(name), signal.SIGCONT)
    return seconds


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _stall(these: Federation, *names: str) -> float:
    seconds = these.length()
    for name in names:
        these.links[name].flows.clear()
    try:
        these.pause(seconds)
    finally:
        for name in names:
            these.links[name].flows.set()
    return seconds


def _set_clock(these: Federation, name: str) -> float:
    seconds = these.length()
    these.set_clock(name, these.rng.choice((-1, 1)) * seconds)
    try:
        these.pause(these.rng.choice((5, 30, 90)))
    finally:
        these.set_clock(name, 0)
    return seconds


def strangers_stay(these: Federation) -> float:
    """More idle connections than there are places."""
    with ExitStack() as stack:
        for _ in range(700):
            with suppress(OSError):
                stack.enter_context(socket.create_connection(("127.0.0.1", these.port), timeout=5))
        these.pause(15)
    return 0.0


def strangers_babble(these: Federation) -> float:
    """Bytes that mean nothing, before and after a handshake, and requests of all kinds."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    requests = [
        these.rng.randbytes(2000),
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: 1500000000\r\n\r\n" + bytes(100_000),
        b"POST /v1/fleet/activate-node HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"ffff\r\n" * 999,
        b"POST /v1/control/stop-run HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n\x08\x01",
        b"A" * 100_000,
        b"POST /v1/fleet/pull-messages HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
    ]
    for _ in range(60):
        with suppress(OSError, ssl.SSLError), socket.create_connection(("127.0.0.1", these.port), timeout=5) as plain:
            request = these.rng.choice(requests)
            if these.rng.random() < 0.3:
                plain.sendall(request)
            else:
                with context.wrap_socket(plain) as talk:
                    talk.sendall(request)
                    talk.recv(100)
    return 0.0


def _a_site(these: Federation) -> str:
    return these.rng.choice(these.sites)


Disturbance = tuple[str, Callable[[Federation], float]]
ALL: list[Disturbance] = [
    ("kill server", lambda these: _kill(these, "server")),
    ("kill site", lambda these: _kill(these, _a_site(these))),
    ("server sleeps", lambda these: _sleep(these, "server")),
    ("site sleeps", lambda these: _sleep(these, _a_site(these))),
    ("everybody sleeps", lambda these: _sleep(these, "server", *these.sites)),
    ("processors starve", processors_starve),
    ("one link stalls", lambda these: _stall(these, _a_site(these))),
    ("all links stall", lambda these: _stall(these, *these.sites)),
    ("server clock is set", lambda these: _set_clock(these, "server")),
    ("site clock is set", lambda these: _set_clock(these, _a_site(these))),
    ("strangers stay", strangers_stay),
    ("strangers babble", strangers_babble),
]


def shuffled(rng: random.Random) -> Iterator[Disturbance]:
    """All disturbances in some order, and again: none is rare."""
    while True:
        yield from rng.sample(ALL, len(ALL))
