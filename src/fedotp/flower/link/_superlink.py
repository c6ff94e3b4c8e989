"""Flower's SuperLink inside the server process.

Sites reach the Fleet API only, on the public port. Flower's other APIs, through which anyone could start runs and so
run code here, are served on the loopback interface to whoever knows a secret, which is this process. The server's part
of a run is done by this process itself: no code that came in a bundle is ever executed.

What Flower keeps in memory lives as long as this process, so nothing in it may expire because the machine slept or its
clock was set: the run's own token has no end, and whether a site is there is told by a clock that nobody sets.
"""

import errno
import hashlib
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.app import Message
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import FLEET_API_GRPC_RERE_DEFAULT_ADDRESS, TRANSPORT_TYPE_GRPC_RERE, SubStatus
from flwr.common.serde import context_from_proto, context_to_proto, fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
from flwr.server.superlink.linkstate import in_memory_linkstate
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.corestate import in_memory_corestate
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
from flwr.superlink.grid import HttpGrid
from flwr.superlink.main import create_app

from fedotp.errors import FedotpError, TransientError
from fedotp.flower.keys import ServerKeys
from fedotp.flower.link._doors import Doors
from fedotp.flower.link._gate import SECRET_HEADER, Gate, LocalGate

log = logging.getLogger("fedotp.server")

_LOOPBACK = "127.0.0.1"
_PATIENCE = 30.0  # seconds for a listener to come up
_LONGEST_HEAD = 16_384  # bytes of a request before its body
_MAY_PASS = {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE}  # the last process is ending, say
_FOREVER = datetime.max.replace(tzinfo=UTC)


@contextmanager
def superlink(host: str, port: int, keys: ServerKeys | None) -> Iterator["SuperLink"]:
    """A SuperLink that listens at `host`:`port`; with `keys` over TLS, and only to sites whose keys they name."""
    link = SuperLink(host, port, keys)
    try:
        link.start()
        yield link
    finally:
        link.stop()


class SuperLink:
    """Two listeners on one Flower application: one for sites, one for this process."""

    def __init__(self, host: str, port: int, keys: ServerKeys | None) -> None:
        """Nothing listens yet."""
        self.host, self.port, self.keys = host, port, keys
        self.nodes: dict[int, str] | None = None
        self._keys = {} if keys is None else {name: _public_bytes(key) for name, key in keys.sites.items()}
        self._secret = secrets.token_hex(32)
        _use_steady_clock()
        self._local_doors, self._doors = Doors(), Doors()
        self._sockets = [_listen(self._local_doors, _LOOPBACK, 0)]
        self.local = f"{_LOOPBACK}:{self._sockets[0].getsockname()[1]}"
        self._app = create_app(self._settings(), SuperLinkLifespan)
        known = None if keys is None else {key: name for name, key in self._keys.items()}
        self._gate = Gate(self._app, known, self._doors)
        self._listeners: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(self) -> None:
        """Let in the sites that have keys, then listen to them."""
        self._sockets.append(_listen(self._doors, self.host, self.port))
        local, public = self._sockets
        self._serve(LocalGate(self._app, self._secret, self._local_doors), local, lifespan="on")
        self.nodes = None if self.keys is None else self._register(self.keys.sites)
        tls = {} if self.keys is None else {"ssl_certfile": self.keys.certificate, "ssl_keyfile": self.keys.key}
        self._serve(self._gate, public, lifespan="off", **tls)

    def _serve(self, app: Any, listening: socket.socket, **options: Any) -> None:
        config = uvicorn.Config(
            app,
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=2,
            loop="asyncio",  # it asks the socket for each connection, and so do its doors
            http="h11",
            ws="none",
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            **options,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        self._listeners.append((server, thread))
        end = time.monotonic() + _PATIENCE
        while not server.started:
            if not thread.is_alive() or time.monotonic() > end:
                raise TransientError(f"cannot listen at {listening.getsockname()[:2]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop listening."""
        for doors in (self._doors, self._local_doors):
            doors.close()
        for server, _ in reversed(self._listeners):
            server.should_exit = True
        for _, thread in self._listeners:
            thread.join(timeout=5)
        for listening in self._sockets:
            listening.close()

    def _register(self, sites: Mapping[str, str]) -> dict[int, str]:
        """Admit sites by their public keys (OpenSSH's text); the Flower node each of them is."""
        with self._client(ControlHttpClient) as client:
            return {
                client.RegisterNode(RegisterNodeRequest(public_key=self._keys[name], name=name)).node_id: name
                for name in sites
            }

    @contextmanager
    def run(self) -> Iterator[HttpGrid]:
        """Start a run and do the server's part of it here: the grid that reaches the sites."""
        bundle = build_fab_from_disk(Path(__file__).parent.parent / "app")
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        with self._client(ControlHttpClient) as control:
            control.StartRun(StartRunRequest(fab=fab_to_proto(fab)))
        with self._client(RuntimeHttpClient) as runtime:
            answer = runtime.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
        if not answer.token:
            raise FedotpError("the SuperLink did not hand over the run it was asked to start")
        grid = _Grid(self.local, answer.token, self._secret, self._expect)
        given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        self._app.state.linkstate_factory.state().task_token_store[given.task_id].active_until = _FOREVER
        context = context_from_proto(given.context)
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = context.node_id
        grid.set_run(run_from_proto(given.run))
        status, details = SubStatus.FAILED, "the server stopped"
        try:
            yield grid
            status, details = SubStatus.COMPLETED, ""
        except httpx.HTTPError as error:
            raise TransientError(f"the link inside this server broke ({type(error).__name__}: {error})") from error
        finally:
            output = PushTaskOutputRequest(context=context_to_proto(context), sub_status=status, details=details)
            try:
                grid._runtime_client.PushTaskOutput(output)
            except httpx.HTTPError as error:
                log.warning("the SuperLink was not told how the run ended: %s", error)
            grid.close()

    def _expect(self, message: Message) -> None:
        """A site is sent a message, and may answer."""
        name = (self.nodes or {}).get(message.metadata.dst_node_id)
        if name is not None:
            self._gate.expect(self._keys[name], message)

    @contextmanager
    def _client(self, kind: Any) -> Iterator[Any]:
        version = RuntimeVersionHttpInterceptor(component_name="fedotp server")
        client = kind.from_server_address(self.local, True, None, [version])
        client._client.headers[SECRET_HEADER] = self._secret
        try:
            yield client
        finally:
            client.close()

    def _settings(self) -> SuperLinkLifespanConfig:
        return SuperLinkLifespanConfig(
            control_address=self.local,
            health_server_address=None,
            host=self.host,
            port=self.port,
            insecure=self.keys is None,
            certificates=None,
            superexec_auth_secret=None,
            authn_plugin=load_control_authn_plugin(),
            event_log_plugin=None,
            fleet_event_log_plugin=None,
            enable_event_log=False,
            artifact_provider=None,
            enable_supernode_auth=self.keys is not None,
            fleet_api_type=TRANSPORT_TYPE_GRPC_RERE,
            fleet_api_address=FLEET_API_GRPC_RERE_DEFAULT_ADDRESS,
            simulation=False,
            ssl_ca_certfile=None,
            ssl_certfile=None,
            ssl_keyfile=None,
            database=FLWR_IN_MEMORY_DB_NAME,
            isolation="process",
            runtime_dependency_install=False,
        )


def free_port() -> int:
    """A port on the loopback interface that nobody uses just now."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


class _Grid(HttpGrid):
    """Flower's grid to the listener of this process; `on_send` is told of every message to a site."""

    def __init__(self, address: str, token: str, secret: str, on_send: Callable[[Message], object]) -> None:
        super().__init__(address, insecure=True, token=token)
        self._secret, self._on_send = secret, on_send

    def _connect(self) -> None:
        super()._connect()
        assert self._client is not None
        self._client._client.headers[SECRET_HEADER] = self._secret

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        for message in messages:
            self._on_send(message)
        return super().push_messages(messages)


def _use_steady_clock() -> None:
    """Let Flower's memory of sites and messages go by a clock that nobody sets."""
    began, ticks = datetime.now(UTC), time.monotonic()

    def steady() -> datetime:
        return began + timedelta(seconds=time.monotonic() - ticks)

    in_memory_linkstate.now = in_memory_corestate.now = steady  # type: ignore[attr-defined]


def _listen(doors: Doors, host: str, port: int) -> socket.socket:
    """A listening socket, or one line why there is none."""
    try:
        return doors.listen(host, port)
    except OSError as error:
        kind = TransientError if error.errno in _MAY_PASS else FedotpError
        raise kind(f"cannot listen at {host}:{port}: {error.strerror}; choose another --port") from error


def _public_bytes(text: str) -> bytes:
    return public_key_to_bytes(load_ssh_public_key(text.encode()))  # type: ignore[arg-type]
