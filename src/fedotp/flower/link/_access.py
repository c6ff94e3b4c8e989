"""Access control of the server's ports: limits on connections, and checks of every request before Flower reads it.

A connection must present a registered key in time. If there are too many, unauthenticated ones are closed, oldest
first, so that they neither exhaust the process's file descriptors nor block sites. Flower itself would read requests
of any size before it checks the sender, and store everything that a registered site sends. Here headers are checked
first, bodies are limited in size and time, and a site can push only as much as an answer can require.
"""

import asyncio
import contextlib
import hmac
import logging
import resource
import socket
import time
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flwr.app import Message
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from fedotp import __version__
from fedotp.flower._events import record
from fedotp.flower.keys import digest_of_keys
from fedotp.flower.link import _flwr

log = logging.getLogger("fedotp.server")

MOST = 512  # concurrent connections
MOST_OF_ONE = 32  # concurrent connections with the same key
NO_KEY = 10.0  # seconds in which a connection must present a key

_DESCRIPTORS = 65_536  # requested for this process, within the machine's limit
_SHARE = 4  # connections get at most this fraction (1 / 4) of the descriptors

Peer = tuple[str, int]


@dataclass(eq=False)
class _Connection:
    """A connection: its socket, peer, start and presented key."""

    socket: socket.socket
    peer: Peer
    since: float
    key: bytes | None = None

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() >= 0

    def end(self) -> None:
        """Shut the connection down; the listener then closes it."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class ConnectionLimits:
    """Limits on the connections of a listener. Used from the listener's thread only."""

    def __init__(self, most: int = MOST, *, no_key: float = NO_KEY, most_of_one: int = MOST_OF_ONE) -> None:
        """Allow `most` connections, `most_of_one` per key, and `no_key` seconds for one without a key."""
        self.most = max(1, min(most, _raised_descriptors() // _SHARE))
        self._no_key, self._most_of_one = no_key, most_of_one
        self._connections: dict[Peer, _Connection] = {}

    def listen(self, host: str, port: int) -> socket.socket:
        """Open a socket that listens at `host`:`port` and counts its connections. Raises OSError."""
        listening = _LimitedSocket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listening.limits = self
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(128)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        return listening

    def __len__(self) -> int:
        self._sweep()
        return len(self._connections)

    def enter(self, connection: socket.socket, peer: Peer) -> bool:
        """Count a new connection; False if it exceeds the limit."""
        self._sweep()
        if len(self._connections) >= self.most:
            oldest = next((each for each in self._connections.values() if each.key is None), None)
            if oldest is None:
                return False
            self._drop(oldest)
        self._connections[peer] = _Connection(connection, peer, time.monotonic())
        return True

    def admit(self, peer: Peer, key: bytes) -> bool:
        """Record that the connection from `peer` has presented `key`; False if there are too many with that key."""
        connection = self._connections.get(peer)
        if connection is None or connection.key == key:
            return True
        if sum(other.key == key and other.is_open for other in self._connections.values()) >= self._most_of_one:
            return False
        connection.key = key
        return True

    def close(self) -> None:
        """Close connections without a key; the listener closes the others."""
        for connection in list(self._connections.values()):
            if connection.key is None:
                connection.end()

    def _sweep(self) -> None:
        """Discard closed connections, and close those that have presented no key in time."""
        latest = time.monotonic() - self._no_key
        for connection in list(self._connections.values()):
            if not connection.is_open:
                del self._connections[connection.peer]
            elif connection.key is None and connection.since < latest:
                self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        connection.end()
        del self._connections[connection.peer]


class _LimitedSocket(socket.socket):
    """A listening socket that refuses connections beyond its limits."""

    limits: ConnectionLimits

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection; raises if there is none, or if it exceeds the limits."""
        connection, address = super().accept()
        if not self.limits.enter(connection, (str(address[0]), int(address[1]))):
            connection.close()
            raise ConnectionAbortedError("too many connections")
        return connection, address


def _raised_descriptors() -> int:
    """Raise this process's limit on descriptors as far as allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


UNREGISTERED = "this key is not registered here"
SECRET_HEADER = "fedotp-secret"
CHECK = "/v1/fedotp/check"
"""Path of the request of `fedotp client --check`, which Flower never sees."""

_FLEET = "/v1/fleet/"
_MIB = 1 << 20
_SHORT = 16_384  # bytes of a request that contains only names and numbers
_LONGEST = {  # bytes of a request's body
    "/v1/fleet/push-object": 6 * _MIB,  # Flower sends arrays in pieces of 5 MiB
    "/v1/fleet/push-messages": 64 * 1024,  # a message and the names of its arrays, but not the arrays
}
_BODY_SECONDS = 300.0  # timeout for a body
_REMIND = 60.0  # seconds between log lines about the same problem of a site
_MOST_UNKNOWN = 100  # records of refusals in that time of clients that are no sites

_ANSWER = 8 * _MIB  # bytes of an answer, beyond those below; enough for 300,000 predictions
_ANSWER_PER_BYTE = 4  # bytes of answer for each byte of arrays in the request: the same arrays, and retries
_ANSWERS = 8  # attempts of a site to answer one message


@dataclass
class _Quota:
    """Bytes and answers that a site may still push before the next message to it."""

    n_bytes: int = 0
    answers: int = 0


class SiteAccess:
    """The part of Flower's application that sites need, for sites with known keys.

    Flower gives the same answer to an unknown key as to one that is already connected, but a site must retry only in
    the second case.
    """

    def __init__(self, app: ASGIApp, known: Mapping[bytes, str] | None, limits: ConnectionLimits) -> None:
        """Accept clients with `known` public keys, which map to sites' names; None: any client."""
        self._app, self.known, self._limits = app, known, limits
        self.refused: Mapping[bytes, tuple[str, str]] = {}  # sites' names and reasons by key
        self._quotas: dict[bytes, _Quota] = {}
        self._reminded: dict[tuple[str, bytes | str], float] = {}
        self.seen: dict[str, float] = {}  # time of each site's last request, in seconds since 1970
        self.agreement = ""  # as JSON, for sites that check before they join

    def expect(self, key: bytes, message: Message) -> None:
        """Allow the site with this key to push an answer to `message`."""
        records = message.content.array_records.values() if message.has_content() else ()
        sent = sum(len(array.data) for record in records for array in record.values())
        self._quotas[key] = _Quota(_ANSWER + _ANSWER_PER_BYTE * sent, _ANSWERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or refuse a request."""
        if scope["type"] != "http":
            return
        refusal, body = await self._judge(scope, receive)
        if refusal is not None:
            await _refuse(refusal, scope, receive, send)
        else:
            await self._app(scope, _replayed(body, receive), send)

    async def _judge(self, scope: Scope, receive: Receive) -> tuple[Response | None, bytes]:
        """Return a refusal (or the answer to a check), or None and the body, read only if the headers are valid."""
        path, headers = scope["path"], _headers(scope)
        if not path.startswith(_FLEET) and path != CHECK:
            return PlainTextResponse("not here", 404), b""
        peer = _peer(scope)
        key, known = b"", self.known
        if known is not None:
            key = _claimed_key(headers)
            if key not in known:
                is_new = path in (f"{_FLEET}activate-node", CHECK)
                name, why = self.refused.get(key, ("", UNREGISTERED))
                if self._is_due(why, peer[0]):
                    which = {"site": name} if name else {"fingerprint": _flwr.fingerprint(key)}
                    record("key-refused", **which, address=peer[0], reason=why)
                return JSONResponse(*_flwr.refusal_of_key(why)) if is_new else _unauthorised(), b""
            if not _has_signed(key, headers):
                if self._is_due("forged", peer[0]):
                    self._refused(key, peer, "the signature is not by this key")
                return _unauthorised(), b""
            if (away := _seconds_away(headers)) is not None:
                why = f"its clock differs by {away:+.0f} s from the server's"
                if self._warn("clock", key, f"request refused: {why}"):
                    self._refused(key, peer, why)
                return _unauthorised(), b""
            self.seen[known[key]] = time.time()
        if not self._limits.admit(peer, key or repr(peer).encode()):
            self._warn("many", key, "connection refused: too many connections with its key")
            return PlainTextResponse("too many connections with this key", 429), b""
        length = headers.get("content-length", "0")
        body = await _body(receive, int(length) if length.isdigit() else 0, _LONGEST.get(path, _SHORT))
        if body is None:
            self._warn("long", key, "request refused: too large or too slow")
            return PlainTextResponse("too long", 413), b""
        if known is not self.known and key not in (self.known or ()):
            return _unauthorised(), b""  # refused while the body came
        if key and path in _LONGEST and not self._allow(key, len(body), begins=path.endswith("messages")):
            self._warn("more", key, "request refused: it sends more data than an answer can contain")
            return PlainTextResponse("more than an answer", 413), b""
        if known is not None and path == f"{_FLEET}activate-node" and self._is_due("accepted", key):
            record("key-accepted", site=known[key], address=peer[0])
        if path == CHECK:
            peers = digest_of_keys({name: _flwr.fingerprint(each) for each, name in (known or {}).items()})
            facts = {"version": __version__, "time": time.time(), "agreement": self.agreement, "peers": peers}
            return JSONResponse(facts), b""
        return None, body

    def _allow(self, key: bytes, n_bytes: int, *, begins: bool) -> bool:
        left = self._quotas.setdefault(key, _Quota())
        left.n_bytes -= n_bytes
        left.answers -= begins
        return left.n_bytes >= 0 and left.answers >= 0

    def _refused(self, key: bytes, peer: Peer, why: str) -> None:
        record("key-refused", site=(self.known or {}).get(key), address=peer[0], reason=why)

    def _warn(self, what: str, key: bytes, why: str) -> bool:
        """Log a warning about a site, at most once a minute for each reason; return True if logged."""
        if is_due := self._is_due(what, key):
            log.warning("site %s: %s", (self.known or {}).get(key, "without key"), why)
        return is_due

    def _is_due(self, what: str, who: bytes | str) -> bool:
        """True once a minute for each reason and site (bytes) or unknown client (str), of which there may be many."""
        now = time.monotonic()
        self._reminded = {each: at for each, at in self._reminded.items() if now - at < _REMIND}
        n_unknown = sum(isinstance(each, str) for _, each in self._reminded)
        if (what, who) in self._reminded or (isinstance(who, str) and n_unknown >= _MOST_UNKNOWN):
            return False
        self._reminded[what, who] = now
        return True


class LocalAccess:
    """Flower's whole application, for this process only, which knows the secret."""

    def __init__(self, app: ASGIApp, secret: str, limits: ConnectionLimits) -> None:
        self._app, self._secret, self._limits = app, secret, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward or refuse a request."""
        if scope["type"] == "http":
            given = _headers(scope).get(SECRET_HEADER, "")
            if not hmac.compare_digest(given.encode(), self._secret.encode()):
                await _refuse(PlainTextResponse("not here", 404), scope, receive, send)
                return
            peer = _peer(scope)
            self._limits.admit(peer, repr(peer).encode())
        await self._app(scope, receive, send)


async def _refuse(refusal: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer and close the connection; otherwise the server would read the rest of the body."""
    refusal.headers["connection"] = "close"
    await refusal(scope, receive, send)


def _headers(scope: Scope) -> dict[str, str]:
    """Return the first value of each header, which is what Flower reads."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def _peer(scope: Scope) -> Peer:
    host, port = scope["client"] or ("", 0)
    return str(host), int(port)


def _claimed_key(headers: Mapping[str, str]) -> bytes:
    try:
        return b64decode(headers[_flwr.KEY_HEADER], validate=True)
    except (KeyError, ValueError):
        return b""


def _has_signed(key: bytes, headers: Mapping[str, str]) -> bool:
    try:
        signature = b64decode(headers[_flwr.SIGNATURE_HEADER], validate=True)
        return _flwr.has_signed(key, headers[_flwr.TIME_HEADER], signature)
    except (KeyError, ValueError, TypeError):
        return False


def _seconds_away(headers: Mapping[str, str]) -> float | None:
    """Return the offset of the signer's clock in seconds if it is more than Flower accepts."""
    try:
        signed = datetime.fromisoformat(headers[_flwr.TIME_HEADER])
        away = (signed - datetime.now(signed.tzinfo)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return float("nan")
    return None if _flwr.EARLIEST < away < _flwr.LATEST else away


def _unauthorised() -> Response:
    return JSONResponse({"detail": "Invalid SuperNode authentication"}, 401)


async def _body(receive: Receive, declared: int, longest: int) -> bytes | None:
    """Read the body of a request; None if it is too long or takes too long."""
    parts: list[bytes] = []
    n_bytes, more = declared, True
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            while more and n_bytes <= longest:
                part = await receive()
                parts.append(part.get("body", b""))
                n_bytes = max(declared, sum(map(len, parts)))
                more = part.get("more_body", False)
    except TimeoutError:
        return None
    return None if more or n_bytes > longest else b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Make a `receive` that returns a body which was already read."""
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return parts.pop() if parts else await receive()

    return again
