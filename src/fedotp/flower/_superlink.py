"""Flower's SuperLink inside the server process.

Sites reach the Fleet API only, on the public port. Flower's other APIs, through which anyone could start runs and so
run code here, are served on the loopback interface. The server's part of a run is done by this process itself: no
code that came in a bundle is ever executed.
"""

import hashlib
import logging
import socket
import threading
import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import FLEET_API_GRPC_RERE_DEFAULT_ADDRESS, TRANSPORT_TYPE_GRPC_RERE, SubStatus
from flwr.common.serde import context_from_proto, context_to_proto, fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
from flwr.superlink.grid import HttpGrid
from flwr.superlink.main import create_app
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fedotp.errors import FedotpError
from fedotp.flower._keys import ServerKeys

log = logging.getLogger("fedotp.server")

UNREGISTERED = "this key is not registered here"

_LOOPBACK = "127.0.0.1"
_PATIENCE = 30.0  # seconds for a listener to come up
_SHORT = 10_000  # bytes of a request that has no more than a key


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
    """Two listeners on one Flower application: one for sites, one for this machine."""

    def __init__(self, host: str, port: int, keys: ServerKeys | None) -> None:
        """Nothing listens yet."""
        self.host, self.port, self.keys = host, port, keys
        self.nodes: dict[int, str] | None = None
        self.local = f"{_LOOPBACK}:{free_port()}"
        self._known = None if keys is None else {_public_bytes(key) for key in keys.sites.values()}
        app = create_app(self._settings(), SuperLinkLifespan)
        public = {} if keys is None else {"ssl_certfile": keys.certificate, "ssl_keyfile": keys.key}
        self._listeners = [
            _listener(app, _LOOPBACK, int(self.local.rpartition(":")[2]), lifespan="on"),
            _listener(Gate(app, self._known), host, port, lifespan="off", **public),
        ]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Let in the sites that have keys, then listen to them."""
        require_free(self.host, self.port)
        local, public = self._listeners
        self._listen(local)
        self.nodes = None if self.keys is None else self._register(self.keys.sites)
        self._listen(public)

    def _listen(self, listener: uvicorn.Server) -> None:
        thread = threading.Thread(target=listener.run, daemon=True)
        thread.start()
        self._threads.append(thread)
        end = time.monotonic() + _PATIENCE
        while not listener.started:
            if not thread.is_alive() or time.monotonic() > end:
                raise FedotpError(f"cannot listen at {listener.config.host}:{listener.config.port}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop listening."""
        for listener in reversed(self._listeners):
            listener.should_exit = True
        for thread in self._threads:
            thread.join(timeout=5)

    def _register(self, sites: Mapping[str, str]) -> dict[int, str]:
        """Admit sites by their public keys (OpenSSH's text); the Flower node each of them is."""
        with _client(ControlHttpClient, self.local) as client:
            return {
                client.RegisterNode(RegisterNodeRequest(public_key=_public_bytes(key), name=name)).node_id: name
                for name, key in sites.items()
            }

    @contextmanager
    def run(self) -> Iterator[HttpGrid]:
        """Start a run and do the server's part of it here: the grid that reaches the sites."""
        bundle = build_fab_from_disk(Path(__file__).parent / "app")
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        with _client(ControlHttpClient, self.local) as control:
            control.StartRun(StartRunRequest(fab=fab_to_proto(fab)))
        with _client(RuntimeHttpClient, self.local) as runtime:
            answer = runtime.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
        if not answer.token:
            raise FedotpError("the SuperLink did not hand over the run it was asked to start")
        grid = HttpGrid(self.local, insecure=True, token=answer.token)
        heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(grid._runtime_client))
        heartbeat.start()
        given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        context = context_from_proto(given.context)
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
        TaskIdentity.node_id = context.node_id
        grid.set_run(run_from_proto(given.run))
        status, details = SubStatus.FAILED, "the server stopped"
        try:
            yield grid
            status, details = SubStatus.COMPLETED, ""
        finally:
            output = PushTaskOutputRequest(context=context_to_proto(context), sub_status=status, details=details)
            try:
                grid._runtime_client.PushTaskOutput(output)
            except httpx.HTTPError as error:
                log.warning("the SuperLink was not told how the run ended: %s", error)
            heartbeat.stop()
            grid.close()

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


class Gate:
    """Flower's application as far as sites need it, and only for sites whose keys are known.

    Flower would answer to an unknown key as to one that is connected already, and a site could not tell whether it
    should try again.
    """

    def __init__(self, app: ASGIApp, known: Container[bytes] | None) -> None:
        """`known` public keys may connect; None: all."""
        self._app, self._known = app, known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on or refuse a request."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        if not path.startswith("/v1/fleet/"):
            await PlainTextResponse("not here", 404)(scope, receive, send)
        elif path == "/v1/fleet/activate-node" and self._known is not None:
            body = await _body(receive)
            if body is None or _key_of(body) not in self._known:
                refusal = FlowerError(ApiErrorCode.PUBLIC_KEY_NOT_VALID, UNREGISTERED).to_json(UNREGISTERED)
                await JSONResponse(refusal, 412)(scope, receive, send)
            else:
                await self._app(scope, _replayed(body, receive), send)
        else:
            await self._app(scope, receive, send)


async def _body(receive: Receive) -> bytes | None:
    """The whole body of a request that should be short; None if it is not."""
    body, more = b"", True
    while more:
        part = await receive()
        body += part.get("body", b"")
        more = part.get("more_body", False) and len(body) <= _SHORT
    return None if more or len(body) > _SHORT else body


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A request's body that was read already, once more."""
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return parts.pop() if parts else await receive()

    return again


def _key_of(body: bytes) -> bytes:
    try:
        return ActivateNodeRequest.FromString(body).public_key
    except DecodeError:
        return b""


def free_port() -> int:
    """A port on the loopback interface that nobody uses just now."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def require_free(host: str, port: int) -> None:
    """Refuse an address that cannot be listened at."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise FedotpError(f"cannot listen at {host}:{port}: {error.strerror}; choose another --port") from error


def _listener(app: Any, host: str, port: int, *, lifespan: Any, **options: Any) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        lifespan=lifespan,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=2,
        **options,
    )
    return uvicorn.Server(config)


@contextmanager
def _client(kind: Any, address: str) -> Iterator[Any]:
    client = kind.from_server_address(
        address, True, None, [RuntimeVersionHttpInterceptor(component_name="fedotp server")]
    )
    try:
        yield client
    finally:
        client.close()


def _public_bytes(text: str) -> bytes:
    return public_key_to_bytes(load_ssh_public_key(text.encode()))  # type: ignore[arg-type]
