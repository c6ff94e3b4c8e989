"""The server of the page, based on `http.server`.

It rejects requests of pages in other tabs (Origin) and of host names that were made to resolve here (Host).
"""

import json
import socket
import sys
import urllib.parse
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

import fedotp
from fedotp._web import HEADERS, host_and_port, is_address, is_loopback
from fedotp.classifier import Classifiers
from fedotp.errors import FedotpError
from fedotp.ot import require_mass
from fedotp.serve._page_model import MAX_BYTES, Model, Samples

_ASSETS = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    **HEADERS,
}
_QUESTION_BYTES = 100_000  # size limit of a request in JSON
_PATIENCE = 60  # timeout of a silent connection, in seconds


class Server(ThreadingHTTPServer):
    """The server of the page and its model."""

    daemon_threads = True

    def __init__(self, model: Model, host: str, port: int) -> None:
        """Listen on `host` and `port`; 0: any free port."""
        self.model = model
        self.host = host
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """The address of the page."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_address[1]}/"

    def is_ours(self, host: str | None) -> bool:
        """True if a Host header is this server's name, localhost, or an IP address."""
        name, port = host_and_port(host or "")
        return (port or 80) == self.server_address[1] and (name in (self.host.lower(), "localhost") or is_address(name))

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore disconnected browsers; print other errors."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def make_server(classifiers: Classifiers, *, host: str, port: int) -> Server:
    """Make a server for the classifiers of a run or a bundle; it listens, but does not answer yet.

    If it is reachable only from this machine, it also shows test images of the run's clients, if available, and their
    class frequencies.
    """
    is_local = is_loopback(host)
    has_images = (classifiers.path / "partition.json").is_file()  # unlike a bundle or a run of real sites
    samples = Samples(classifiers.path) if is_local and has_images else None
    try:
        return Server(Model(classifiers, samples, with_frequencies=is_local), host, port)
    except OSError as error:
        raise FedotpError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --port (0: any free port)"
        ) from error


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = f"fedotp/{fedotp.__version__}"
    sys_version = ""
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Send the page, its files, and uploaded images."""
        if not self._admitted():
            return
        path, _, query = self.path.partition("?")
        if path in _ASSETS:
            name, kind = _ASSETS[path]
            self._send(HTTPStatus.OK, kind, resources.files("fedotp.serve").joinpath("assets", name).read_bytes())
        elif path == "/api/about":
            self._answer(self.server.model.about)
        elif path == "/api/samples":
            client = urllib.parse.parse_qs(query).get("client", [""])[0]
            self._answer(lambda: self.server.model.samples(client))
        elif path.startswith("/api/images/"):
            try:
                self._send(HTTPStatus.OK, "image/png", self.server.model.picture(path.removeprefix("/api/images/")))
            except FedotpError as error:
                self._fail(HTTPStatus.NOT_FOUND, str(error))
        else:
            self._fail(HTTPStatus.NOT_FOUND, "not found")

    def do_POST(self) -> None:
        """Receive an image, or a request about one."""
        if not self._admitted():
            return
        limits = {"/api/images": MAX_BYTES, "/api/look": _QUESTION_BYTES}
        if self.path not in limits:
            self._fail(HTTPStatus.NOT_FOUND, "not found")
            return
        body = self._body(limits[self.path])
        if body is None:
            return
        if self.path == "/api/images":
            self._answer(lambda: self.server.model.add(body))
        else:
            self._answer(lambda: self.server.model.look(**_question(body)))

    def _admitted(self) -> bool:
        """Return True if the request is from our own page or from no page."""
        host, origin = self.headers.get("Host"), self.headers.get("Origin")
        # links to "/" are allowed
        own = self.path == "/" or self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        if self.server.is_ours(host) and origin in (None, f"http://{host}") and own:
            return True
        self._fail(HTTPStatus.FORBIDDEN, f"forbidden: use {self.server.url}; other names and pages are rejected")
        return False

    def _body(self, limit: int) -> bytes | None:
        """Read the body; if it is too large or of unknown length, send an error and return None."""
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            self._fail(HTTPStatus.LENGTH_REQUIRED, "Content-Length must be a number of bytes")
            return None
        if len(length) > 15 or int(length) > limit:
            self._fail(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the content must be at most {limit / 1e6:g} MB")
            return None
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self._fail(HTTPStatus.BAD_REQUEST, "the content is truncated")
            return None
        return body

    def _answer(self, ask: Callable[[], dict[str, Any]]) -> None:
        try:
            answer = ask()
        except FedotpError as error:
            self._fail(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), close=False)
            return
        self._send(HTTPStatus.OK, "application/json", json.dumps(answer).encode())

    def _fail(self, status: HTTPStatus, message: str, *, close: bool = True) -> None:
        """Send an error; close the connection if the rest of the request is not read."""
        self.close_connection = close
        self._send(status, "application/json", json.dumps({"error": message}).encode())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send errors of the base class (other methods, malformed requests) as JSON."""
        self._fail(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def _question(body: bytes) -> dict[str, Any]:
    """Parse a request about an image into the arguments of `Model.look`."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FedotpError("the request is not JSON") from error
    none = type(None)
    kinds = {
        "image": (str,),
        "client": (str,),
        "label": (str, none),
        "mass": (int, float, none),
        "dial": (int, float, str, none),
        "prior": (int, float, none),
    }
    if not isinstance(asked, dict) or asked.keys() != kinds.keys():
        raise FedotpError(f"a request must have {', '.join(kinds)}")
    for name, kind in kinds.items():
        value = asked[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise FedotpError(f"{name} = {str(value)[:40]!r}: invalid type {type(value).__name__}")
    if asked["mass"] is not None:
        require_mass(asked["mass"])
    return asked
