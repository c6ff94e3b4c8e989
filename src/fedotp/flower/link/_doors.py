"""The door of a listener: how many connections may stand in it, and for how long without showing a key.

Whoever can reach the port can connect. A connection that has not shown a key in time is closed, and when all places are
taken the oldest such one makes room: idle strangers neither exhaust the file descriptors of the process nor keep
sites out.
"""

import contextlib
import resource
import socket
import time
from dataclasses import dataclass
from typing import Any

MOST = 512  # connections at a time
MOST_OF_ONE = 32  # of them with the same key
NO_KEY = 10.0  # seconds in which a connection must show a key

_DESCRIPTORS = 65_536  # what a process may ask for, if the machine's limit allows it
_SHARE = 4  # connections take at most one in so many descriptors: files, threads and links need the rest

Peer = tuple[str, int]


@dataclass(eq=False)
class _Visit:
    """One connection: its socket, where it comes from, when, and the key it has shown."""

    socket: socket.socket
    peer: Peer
    since: float
    key: bytes | None = None

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0

    def end(self) -> None:
        """Hang up; whoever serves the connection sees its end and closes it."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Doors:
    """Counts a listener's connections and closes those that overstay. Used from the listener's own thread only."""

    def __init__(self, most: int = MOST, *, no_key: float = NO_KEY, most_of_one: int = MOST_OF_ONE) -> None:
        """At most `most` connections, `most_of_one` of one key; one without a key lasts `no_key` seconds at most."""
        self.most = max(1, min(most, _raised_descriptors() // _SHARE))
        self._no_key, self._most_of_one = no_key, most_of_one
        self._visits: dict[Peer, _Visit] = {}

    def listen(self, host: str, port: int, backlog: int = 128) -> socket.socket:
        """A socket that listens at `host`:`port` and whose connections are counted. Raises OSError."""
        listening = _Listening(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listening.doors = self
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(backlog)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        return listening

    def __len__(self) -> int:
        """How many connections are open."""
        self._sweep()
        return len(self._visits)

    def enter(self, connection: socket.socket, peer: Peer) -> bool:
        """Count a new connection; False if there is no place for it."""
        self._sweep()
        if len(self._visits) >= self.most:
            stranger = next((visit for visit in self._visits.values() if visit.key is None), None)  # the oldest
            if stranger is None:
                return False
            self._drop(stranger)
        self._visits[peer] = _Visit(connection, peer, time.monotonic())
        return True

    def admit(self, peer: Peer, key: bytes) -> bool:
        """The connection from `peer` has shown `key`; False if there are too many with that key already."""
        visit = self._visits.get(peer)
        if visit is None or visit.key == key:
            return True
        if sum(other.key == key and other.is_open for other in self._visits.values()) >= self._most_of_one:
            return False
        visit.key = key
        return True

    def close(self) -> None:
        """Hang up on those who are still in the door: nobody else knows of them."""
        for visit in list(self._visits.values()):
            if visit.key is None:
                visit.end()

    def _sweep(self) -> None:
        """Forget what is closed, and close what has shown no key in time."""
        latest = time.monotonic() - self._no_key
        for visit in list(self._visits.values()):
            if not visit.is_open:
                del self._visits[visit.peer]
            elif visit.key is None and visit.since < latest:
                self._drop(visit)

    def _drop(self, visit: _Visit) -> None:
        visit.end()
        del self._visits[visit.peer]


class _Listening(socket.socket):
    """A listening socket that asks its doors about every connection."""

    doors: Doors

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; raises where there is none, or no place for it."""
        connection, address = super().accept()
        if not self.doors.enter(connection, (str(address[0]), int(address[1]))):
            connection.close()
            raise ConnectionAbortedError("no place for another connection")
        return connection, address


def _raised_descriptors() -> int:
    """How many descriptors the process may have, after asking for as many as it is allowed to ask for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
