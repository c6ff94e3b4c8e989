"""The state of a server or a site, collected from its events and warnings."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import fedotp
from fedotp._text import one_line
from fedotp.flower._events import Event

_MOST_POINTS = 1000  # of a curve
_MOST_WARNINGS = 30
_SILENCE = 90.0  # seconds without an answer or a request after which the other end counts as disconnected


@dataclass
class _Peer:
    """The other end of a connection: of a server's, a site; of a site's, its server.

    Attributes:
        seen: time of its last request or answer.
        updates: number of its accepted updates; `refused`: of the others, because of their content.
        fault: the reason why it gave no update in the last round.
    """

    connected: bool = False
    seen: float | None = None
    images: int | None = None
    updates: int = 0
    refused: int = 0
    accuracy: float | None = None
    fault: str = ""


@dataclass
class _Facts:
    """Facts of the process. Times are in seconds since 1970; None: unknown, or not applicable.

    Attributes:
        round: the last complete round; at a site, the round of the last order.
        order: kind of the last order; `ordered`: its time.
        seconds: of all `done` rounds together; `last_seconds`: of the last one.
        epsilon: spent by the run; `epsilon_of_all`: by all runs of a site.
    """

    role: Literal["server", "site"]
    name: str
    version: str = fedotp.__version__
    started: float = field(default_factory=time.time)
    run: str | None = None
    method: str | None = None
    round: int | None = None
    rounds: int | None = None
    order: str | None = None
    ordered: float | None = None
    last_seconds: float | None = None
    seconds: float = 0.0
    done: int = 0
    orders: int = 0
    orders_refused: int = 0
    updates: int = 0
    keys_refused: int = 0
    epsilon: float | None = None
    epsilon_of_all: float | None = None
    delta: float | None = None
    warned: int = 0


class Status(logging.Handler):
    """The current state of this process: `on_event` is a handler of events, the rest one of log lines. Thread-safe."""

    def __init__(
        self, role: Literal["server", "site"], peers: Iterable[str], seen: Mapping[str, float], name: str = ""
    ) -> None:
        """`peers` are the names of the other ends; `seen` is a live table of the times of their last contact."""
        super().__init__(logging.WARNING)
        self._facts = _Facts(role, name)
        self._seen = seen
        self._peers = {name: _Peer() for name in peers}
        self._curves: dict[str, deque[tuple[int, float]]] = {
            key: deque(maxlen=_MOST_POINTS) for key in ("accuracy", "loss")
        }
        self._warnings: deque[tuple[float, str, str]] = deque(maxlen=_MOST_WARNINGS)
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning; of a site's, which can name files and so patients, only when it was."""
        text = one_line(record.getMessage()) if self._facts.role == "server" else "see the log"
        with self._guard:
            self._facts.warned += 1
            self._warnings.appendleft((record.created, record.levelname, text))

    def as_dict(self) -> dict[str, Any]:
        """Return all facts, as JSON values."""
        with self._guard:
            peers = [{"name": name, **asdict(self._current(name, peer))} for name, peer in self._peers.items()]
            curves = {key: list(points) for key, points in self._curves.items()}
            own = asdict(self._facts)
            return {**own, "now": time.time(), "peers": peers, **curves, "warnings": list(self._warnings)}

    def on_event(self, event: Event, facts: Mapping[str, Any]) -> None:
        """Take in an event of this process."""
        with self._guard:
            self._take(event, facts)

    def _take(self, event: Event, facts: Mapping[str, Any]) -> None:
        own, now = self._facts, time.time()
        name = facts.get("site", "")
        if event == "ready":
            self._peers.setdefault(name, _Peer())
        peer = self._peers.get(name, _Peer())
        match event:
            case "configuration" if "rounds" in facts:
                own.run, own.method, own.rounds = facts["run"], facts["method"], facts["rounds"]
            case "key-refused":
                own.keys_refused += 1
            case "ready":
                peer.connected, peer.images, peer.seen = True, facts["images"], now
            case "disconnected":
                peer.connected = False
            case "order":
                own.order, own.ordered = facts["kind"], now
                own.orders += 1
                if own.role == "site":
                    own.run, own.round = facts["run"], facts["round"]
            case "order-refused" if own.role == "site":
                own.orders_refused += 1
            case "order-refused":
                peer.fault = facts["reason"]
            case "update":
                own.updates += 1
            case "update-refused":
                peer.refused += 1
            case "round":
                self._end_round(facts, now)
            case "evaluation":
                if facts["accuracy"] is not None:
                    self._curves["accuracy"].append((facts["round"], facts["accuracy"]))
                for site, each in self._peers.items():
                    each.accuracy = facts.get("sites", {}).get(site, each.accuracy)
            case "privacy-spent":
                own.epsilon, own.delta = facts["epsilon"], facts["delta"]
                own.epsilon_of_all = facts.get("total")

    def _end_round(self, facts: Mapping[str, Any], now: float) -> None:
        own, faults = self._facts, facts["faults"]
        own.run, own.round, own.rounds = facts["run"], facts["round"], facts["rounds"]
        own.last_seconds, own.seconds, own.done = facts["seconds"], own.seconds + facts["seconds"], own.done + 1
        own.epsilon = facts["epsilon"]
        if facts["loss"] is not None:
            self._curves["loss"].append((facts["round"], facts["loss"]))
        for name, peer in self._peers.items():
            peer.fault = faults.get(name, "")
            if name in facts["answered"]:
                peer.updates, peer.seen = peer.updates + 1, now

    def _current(self, name: str, peer: _Peer) -> _Peer:
        last = self._seen.get(name)  # a server without keys does not know it
        seen = max(filter(None, (peer.seen, last)), default=None)
        is_silent = time.time() - (last or 0) > _SILENCE
        connected = not is_silent if self._facts.role == "site" else peer.connected and not (last and is_silent)
        return replace(peer, seen=seen, connected=connected)
