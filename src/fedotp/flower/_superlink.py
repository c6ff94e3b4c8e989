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
from collections.abc import Iterator, Mapping
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
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, TaskType
from flwr.supercore.control import ControlHttpClient
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
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fedotp.errors import FedotpError
from fedotp.flower._keys import ServerKeys

log = logging.getLogger("fedotp.server")

_LOOPBACK = "127.0.0.1"
_PATIENCE = 30.0  # seconds for a listener to come up


@contextmanager
def superlink(host: str, port: int, keys: ServerKeys | None) -> Iterator["SuperLink"]:
    """A SuperLink that listens at `host`:`port`; with `keys` over TLS, and only to sites whose keys they name."""
    link = SuperLink(host, port, keys)
    link.start()
    try:
        yield link
    finally:
        link.stop()


class SuperLink:
    """Two listeners on one Flower application: one for sites, one for this machine."""

    def __init__(self, host: str, port: int, keys: ServerKeys | None) -> None:
        """Nothing listens yet."""
        self.host, self.port, self.keys = host, port, keys
        self.local = f"{_LOOPBACK}:{free_port()}"
        app = create_app(self._settings(), SuperLinkLifespan)
        public = {} if keys is None else {"ssl_certfile": keys.certificate, "ssl_keyfile": keys.key}
        self._listeners = [
            _listener(app, _LOOPBACK, int(self.local.rpartition(":")[2]), lifespan="on"),
            _listener(fleet_only(app), host, port, lifespan="off", **public),
        ]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Listen; returns when both listeners are up."""
        require_free(self.host, self.port)
        for listener in self._listeners:
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

    def register(self, sites: Mapping[str, str]) -> dict[int, str]:
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


def fleet_only(app: ASGIApp) -> ASGIApp:
    """`app` as far as sites need it."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/fleet/"):
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await PlainTextResponse("not here", 404)(scope, receive, send)

    return guarded


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
