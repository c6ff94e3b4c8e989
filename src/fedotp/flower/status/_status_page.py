"""The status page: read-only, reachable from this machine only, or from others with a token."""

import hmac
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from fedotp._web import HEADERS, digest_source, host_and_port, is_address, is_loopback
from fedotp.data import read_lines
from fedotp.errors import FedotpError
from fedotp.flower._events import handling, record
from fedotp.flower.link import ConnectionLimits, Listener
from fedotp.flower.status._prometheus import exposition
from fedotp.flower.status._status import Status

log = logging.getLogger("fedotp")

_MOST = 64  # concurrent connections
_SHORTEST = 16  # characters of a token
_REMIND = 60.0  # seconds between records of wrong tokens
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class StatusAddress:
    """An address to listen on; with a `token`, requests for facts must present it."""

    host: str
    port: int
    token: str = ""

    @classmethod
    def parse(cls, address: str, token: Path | None) -> "StatusAddress":
        """Parse HOST:PORT and read the file of the token, which is required if other machines can reach the host."""
        host, port = host_and_port(address)
        if not host or port is None:
            raise FedotpError(f"--status {address}: must be HOST:PORT, for example 127.0.0.1:9100")
        if token is None and not is_loopback(host):
            raise FedotpError(
                f"--status {address}: other machines can reach this address; give --status-token FILE, or use 127.0.0.1"
            )
        secret = "" if token is None else " ".join(read_lines(token))
        if token is not None and not re.fullmatch(rf"[\x21-\x7e]{{{_SHORTEST},}}", secret):
            raise FedotpError(f"--status-token {token}: must be one line of at least {_SHORTEST} ASCII characters")
        return cls(host, port, secret)


@contextmanager
def serve_status(at: StatusAddress | None, status: Status) -> Iterator[str]:
    """Serve the status of this process within the block, and yield its URL; without an address do nothing."""
    if at is None:
        yield ""
        return
    listener = Listener(ConnectionLimits(_MOST), at.host, at.port, "--status")
    log.addHandler(status)
    try:
        with handling(status.on_event):
            listener.serve(StatusApp(status, at.token), lifespan="off")
            url = f"http://{f'[{at.host}]' if ':' in at.host else at.host}:{listener.port}/"
            log.info("status: %s", url)
            yield url
    finally:
        log.removeHandler(status)
        listener.stop()
        listener.close()


class StatusApp:
    """Answers GET requests: the page, its facts, metrics, and a health check."""

    def __init__(self, status: Status, token: str = "") -> None:
        self._status, self._token, self._refused = status, token, -_REMIND
        self._page = (files("fedotp.flower.status") / "page.html").read_text(encoding="utf-8")
        policy = [f"{kind}-src {digest_source(_inside(kind, self._page))}" for kind in ("script", "style")]
        rest = ["default-src 'none'", "connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'"]
        self._policy = "; ".join([*rest, "frame-ancestors 'none'", *policy])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            answer = self._answer(Request(scope))
            answer.headers.update({**HEADERS, "Content-Security-Policy": self._policy, "Connection": "close"})
            await answer(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        """Answer; the page and the health check contain no facts, so they need no token."""
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("read-only\n", 405, {"Allow": "GET, HEAD"})
        host, _ = host_and_port(request.headers.get("host", ""))
        if not self._token and host != "localhost" and not is_address(host):
            return PlainTextResponse("forbidden: use localhost or an IP address\n", 403)
        path = request.url.path
        if path == "/healthz":
            return PlainTextResponse("ok\n")
        if path == "/":
            return HTMLResponse(self._page)
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        is_ours = kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token.encode())
        if self._token and not is_ours:
            if token and time.monotonic() - self._refused > _REMIND:
                self._refused = time.monotonic()
                record("status-refused", address=request.client.host if request.client else "")
            return PlainTextResponse("unauthorised\n", 401, {"WWW-Authenticate": "Bearer"})
        if path == "/status.json":
            return JSONResponse(self._status.as_dict())
        if path == "/metrics":
            return Response(exposition(self._status.as_dict()), media_type=_METRICS)
        return PlainTextResponse("not found\n", 404)


def _inside(element: str, page: str) -> str:
    """Return the text of the only element with this name."""
    _, _, rest = page.partition(f"<{element}>")
    return rest.partition(f"</{element}>")[0]
