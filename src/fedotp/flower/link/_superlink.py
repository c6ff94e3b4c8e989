"""Flower's SuperLink inside the server process.

Sites can reach only the Fleet API, on the public port. Flower's other APIs, which can start runs and thus run code, are
served on the loopback interface and require a secret that only this process knows. This process itself executes the
server's part of a run, and never code from a bundle.

Flower's state in memory must not expire because the machine sleeps or its clock is set: the run's token does not
expire, and the presence of sites is measured with a monotonic clock.
"""

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from flwr.app import Message
from flwr.serverapp import Grid

from fedotp.errors import FedotpError, TransientError
from fedotp.flower.keys import LiveKeys, ServerKeys
from fedotp.flower.link import _flwr
from fedotp.flower.link._access import SECRET_HEADER, ConnectionLimits, LocalAccess, SiteAccess
from fedotp.flower.link._listener import Listener

log = logging.getLogger("fedotp.server")

_LOOPBACK = "127.0.0.1"
_NAME = "fedotp server"
_REREAD = 1.0  # seconds between looks at the files of the keys
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_BUNDLE = Path(__file__).parent.parent / "app"


@contextmanager
def superlink(host: str, port: int, keys: ServerKeys | None) -> Iterator["SuperLink"]:
    """Run a SuperLink at `host`:`port`; with `keys`, over TLS and only for registered sites."""
    link = SuperLink(host, port, keys)
    try:
        link.start()
        yield link
    except _flwr.FAILURES as error:
        raise TransientError(f"connection to the internal SuperLink failed ({type(error).__name__}); retry") from error
    finally:
        link.stop()


class SuperLink:
    """Two listeners on one Flower application: one for sites, one for this process."""

    def __init__(self, host: str, port: int, keys: ServerKeys | None) -> None:
        self.host, self.port = host, port
        self.nodes: dict[int, str] = {}
        self.public_keys: dict[str, str] = {}
        self._keys = None if keys is None else LiveKeys(keys, log)
        self._key_of: dict[int, bytes] = {}
        self._is_stale = True
        self._secret = secrets.token_hex(32)
        self._headers = {SECRET_HEADER: self._secret}
        _flwr.use_clock(_steady_clock())
        self._local_limits, self._limits = ConnectionLimits(), ConnectionLimits()
        self._listeners = [Listener(self._local_limits, _LOOPBACK, 0)]
        self.local = f"{_LOOPBACK}:{self._listeners[0].port}"
        self._app = _flwr.make_app(self.local, host, port, with_keys=keys is not None)
        self._access = SiteAccess(self._app, None if keys is None else {}, self._limits)
        self.seen = self._access.seen
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._keep_watching, daemon=True)

    def start(self) -> None:
        """Register the sites' keys, then listen."""
        self._listeners.append(Listener(self._limits, self.host, self.port))
        local, public = self._listeners
        local.serve(LocalAccess(self._app, self._secret, self._local_limits), lifespan="on")
        if self._keys is None:
            public.serve(self._access, lifespan="off")
            return
        self.refresh()
        held = self._keys.held
        public.serve(self._access, lifespan="off", ssl_certfile=held.certificate, ssl_keyfile=held.key)
        self._watcher.start()

    def refresh(self) -> None:
        """Read changed keys: refuse those that were revoked or have expired, and register new ones."""
        assert self._keys is not None
        self._is_stale |= self._keys.refresh()
        if not self._is_stale:
            return
        accepted = {_flwr.key_bytes(text): name for name, text in self._keys.accepted.items()}
        self._access.refused = {_flwr.key_bytes(text): why for text, why in self._keys.refused.items()}
        registered = set(self._key_of.values())
        self._admit({key: name for key, name in accepted.items() if key in registered})  # first, refuse
        if new := [key for key in accepted if key not in registered]:
            with closing(_flwr.control_client(self.local, _NAME, self._headers)) as client:
                self._key_of.update((_flwr.register_node(client, key, accepted[key]), key) for key in new)
            self._admit(accepted)
        if not self._keys.is_damaged:  # else the certificate presented before stays
            self._listeners[1].use_certificate(self._keys.held.certificate, self._keys.held.key)
        self._is_stale = False

    def _admit(self, accepted: Mapping[bytes, str]) -> None:
        """Accept these keys and no others; other threads read `nodes` and `public_keys`."""
        assert self._keys is not None
        self._access.known = accepted
        _become(self.nodes, {node: accepted[key] for node, key in self._key_of.items() if key in accepted})
        _become(self.public_keys, self._keys.accepted)

    def _keep_watching(self) -> None:
        assert self._keys is not None
        while not self._stopping.wait(_REREAD):
            try:
                self.refresh()
                self._keys.expiry.check()  # here, when the status page can show the warnings
            except Exception:  # retried; refused keys stay refused
                log.exception("cannot apply the changed keys")

    def stop(self) -> None:
        """Stop listening, last for this process's own requests."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for listener in reversed(self._listeners):
            listener.stop()
        for listener in self._listeners:
            listener.close()

    def describe(self, agreement: str) -> None:
        """Set the agreement, as JSON, that accepted sites can read before they join."""
        self._access.agreement = agreement

    @contextmanager
    def run(self) -> Iterator[Grid]:
        """Start a run and execute the server's part of it here; yield the grid that reaches the sites."""
        with closing(_flwr.control_client(self.local, _NAME, self._headers)) as control:
            _flwr.start_run(control, _BUNDLE)
        with closing(_flwr.runtime_client(self.local, _NAME, headers=self._headers)) as runtime:
            token = _flwr.acquire_task(runtime, _flwr.TaskType.SERVER_APP)
        if not token:
            raise FedotpError("the SuperLink returned no task for the started run")
        grid = _flwr.make_grid(self._app, self.local, token, self._headers, self._expect)
        context = _flwr.begin_run(self._app, grid)
        status, details = _flwr.SubStatus.FAILED, "the server stopped"
        try:
            yield grid
            status, details = _flwr.SubStatus.COMPLETED, ""
        finally:
            with suppress(*_flwr.FAILURES):  # the SuperLink ends with this process
                _flwr.end_run(grid, context, status, details)
            grid.close()

    def _expect(self, message: Message) -> None:
        """Allow a site to answer a message."""
        key = self._key_of.get(message.metadata.dst_node_id)
        if key is not None:
            self._access.expect(key, message)


def _become(live: dict[_Key, _Value], wanted: Mapping[_Key, _Value]) -> None:
    """Change `live` into `wanted`."""
    for gone in live.keys() - wanted.keys():
        del live[gone]
    live.update(wanted)


def free_port() -> int:
    """Find a free port on the loopback interface."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _steady_clock() -> Callable[[], datetime]:
    """Make a clock that cannot be set, for Flower's state of sites and messages."""
    began, ticks = datetime.now(UTC), time.monotonic()

    def steady() -> datetime:
        return began + timedelta(seconds=time.monotonic() - ticks)

    return steady
