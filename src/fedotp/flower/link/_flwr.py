"""The parts of Flower that fedotp uses beyond its documented interface (flwr.app, flwr.clientapp, flwr.serverapp).

No other file imports Flower's internals. tests/flower/test_flower_contract.py tests each assumption about them: run it
when Flower is upgraded. Modules for the server or SuperNode only are imported on use.
"""

import hashlib
import logging
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key, ssh_key_fingerprint
from flwr.app import Context, Message
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.common.constant import ErrorCode as ErrorCode
from flwr.common.constant import SubStatus as SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.constant import TaskType as TaskType
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.heartbeat import HeartbeatSender as HeartbeatSender
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.primitives.asymmetric import (
    bytes_to_public_key,
    public_key_to_bytes,
    sign_message,
    verify_signature,
)
from flwr.supercore.protobuf.client import ProtobufRequestContext as ProtobufRequestContext
from flwr.supercore.retry import RetryInvoker as RetryInvoker
from flwr.supercore.retry import make_simple_http_retry_invoker as make_simple_http_retry_invoker
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient as RuntimeHttpClient  # to acquire and answer tasks
from flwr.supernode.fleet_http_client import FleetHttpClient as FleetHttpClient  # SuperNode's connection
from flwr.supernode.runtime.run_clientapp import pull_task_input as pull_task_input  # as Flower's worker does
from flwr.supernode.runtime.run_clientapp import push_message as push_message
from flwr.supernode.runtime.run_clientapp import push_task_output as push_task_output

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient
    from flwr.superlink.grid import HttpGrid
    from starlette.applications import Starlette

# Constants ---------------------------------------------------------------------------------------------------

KEY_HEADER, SIGNATURE_HEADER, TIME_HEADER = FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER
"""Headers of a site's signature, which access control checks before Flower reads the request."""

EARLIEST, LATEST = -TIMESTAMP_TOLERANCE - SYSTEM_TIME_TOLERANCE, SYSTEM_TIME_TOLERANCE
"""Accepted offsets of the signer's clock in seconds; access control logs sites outside them."""

LOST = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.CLIENT_APP_CRASHED,  # no heartbeat from the worker at SuperNode for a minute
)
"""Errors that Flower, not the site, sends instead of an answer: the request is repeated."""

FAILURES = (httpx.HTTPError, ObjectPushError, ObjectPullError, RunNotRunningException)
"""Errors of Flower's calls for a missing or invalid answer of SuperLink or SuperNode."""

HOLDS_A_CONNECTION = f"code: {int(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED)}"
"""Output of SuperNode if the server holds another connection with its key."""

_LOCAL_SECONDS = 300.0  # timeout on the loopback interface: Flower's 30 s are too few on a busy machine
_UNTAKEN = timedelta(seconds=60)  # before a requested but unconfirmed message is delivered again
_ACQUIRE_TASK = "/flwr.proto.Runtime/AcquireTask"  # the only call of SuperNode's API that requires the shared secret
_FOREVER = datetime.max.replace(tzinfo=UTC)

_Client = TypeVar("_Client")


# Everywhere --------------------------------------------------------------------------------------------------


def silence() -> None:
    """Discard Flower's log lines, which quote keys and node numbers; fedotp logs sites by name."""
    FLOWER_LOGGER.handlers = [logging.NullHandler()]


def runtime_client(
    address: str, name: str, *, token: str = "", secret: bytes = b"", headers: Mapping[str, str] | None = None
) -> RuntimeHttpClient:
    """Make a client for tasks of SuperLink or SuperNode, with a task's `token` or the `secret` to acquire tasks."""
    guards: list[Any] = [RuntimeVersionHttpInterceptor(component_name=name)]
    if token:
        guards.append(RuntimeTokenHttpInterceptor(token))
    if secret:
        guards.append(SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={_ACQUIRE_TASK}))
    return _local(RuntimeHttpClient.from_server_address(address, True, None, guards), headers)


def acquire_task(client: RuntimeHttpClient, kind: str) -> str:
    """Return the token of a pending task, or an empty string."""
    return str(client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind])).token)


def _local(client: _Client, headers: Mapping[str, str] | None) -> _Client:
    """Configure `client` for the loopback interface, with additional `headers` and a longer timeout."""
    client._client.headers.update(headers or {})  # type: ignore[attr-defined]
    client._client.timeout = httpx.Timeout(_LOCAL_SECONDS)  # type: ignore[attr-defined]
    return client


# Access control and transport ---------------------------------------------------------------------------------------


def key_bytes(text: str) -> bytes:
    """Convert a public key in OpenSSH format to that of Flower's requests."""
    return public_key_to_bytes(load_ssh_public_key(text.encode()))  # type: ignore[arg-type]


def fingerprint(key: bytes) -> str:
    """Return the fingerprint of a client's key as `fedotp keys show` prints it; "" for an invalid key."""
    try:
        return f"SHA256:{b64encode(ssh_key_fingerprint(bytes_to_public_key(key), SHA256())).decode().rstrip('=')}"
    except (ValueError, TypeError):
        return ""


def signed_headers(path: Path, now: datetime) -> dict[str, str]:
    """Return the headers of a request that is signed with the key in a file, as SuperNode signs."""
    key, time = load_ssh_private_key(path.read_bytes(), None), now.isoformat()
    assert isinstance(key, EllipticCurvePrivateKey)
    signature = b64encode(sign_message(key, time.encode("ascii"))).decode()
    public = b64encode(public_key_to_bytes(key.public_key())).decode()
    return {KEY_HEADER: public, TIME_HEADER: time, SIGNATURE_HEADER: signature}


def has_signed(key: bytes, text: str, signature: bytes) -> bool:
    """True if `text` was signed with the key. Raises ValueError or TypeError for an invalid key."""
    return verify_signature(bytes_to_public_key(key), text.encode("ascii"), signature)


def refusal_of_key(why: str) -> tuple[dict[str, Any], int]:
    """Return an answer, and its status, that makes SuperNode exit and print `why`."""
    return FlowerError(ApiErrorCode.PUBLIC_KEY_NOT_VALID, why).to_json(why), 412


def set_sender(reply: Message, node: int) -> None:
    """Set the sender of an answer to `node`, regardless of its metadata."""
    reply.metadata.__dict__["_src_node_id"] = node


# The server: SuperLink, and the server's part of a run ---------------------------------------------------------


def make_app(local: str, host: str, port: int, *, with_keys: bool) -> "Starlette":
    """Make SuperLink's application, in memory; it starts no process and opens no port."""
    from flwr.common.constant import FLEET_API_GRPC_RERE_DEFAULT_ADDRESS, TRANSPORT_TYPE_GRPC_RERE
    from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
    from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
    from flwr.superlink.main import create_app

    settings = SuperLinkLifespanConfig(
        control_address=local,
        health_server_address=None,
        host=host,
        port=port,
        insecure=not with_keys,
        certificates=None,
        superexec_auth_secret=None,
        authn_plugin=load_control_authn_plugin(),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=with_keys,
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
    return create_app(settings, SuperLinkLifespan)


def use_clock(now: Callable[[], datetime]) -> None:
    """Make `now` the clock of Flower's state of sites, messages and tokens."""
    from flwr.server.superlink.linkstate import in_memory_linkstate
    from flwr.supercore.corestate import in_memory_corestate

    in_memory_linkstate.now = in_memory_corestate.now = now  # type: ignore[attr-defined]


def control_client(address: str, name: str, headers: Mapping[str, str]) -> "ControlHttpClient":
    """Make a client for nodes and runs of SuperLink."""
    from flwr.supercore.control import ControlHttpClient

    version = RuntimeVersionHttpInterceptor(component_name=name)
    return _local(ControlHttpClient.from_server_address(address, True, None, [version]), headers)


def register_node(client: "ControlHttpClient", key: bytes, name: str) -> int:
    """Register a site's key, and return its node."""
    from flwr.proto.control_pb2 import RegisterNodeRequest

    return int(client.RegisterNode(RegisterNodeRequest(public_key=key, name=name)).node_id)


def start_run(client: "ControlHttpClient", folder: Path) -> None:
    """Start a run of the Flower app in `folder`: SuperLink needs one for a run, but no process executes it."""
    from flwr.cli.build import build_fab_from_disk
    from flwr.common.serde import fab_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.supercore.fab import Fab

    bundle = build_fab_from_disk(folder)
    client.StartRun(StartRunRequest(fab=fab_to_proto(Fab(hashlib.sha256(bundle).hexdigest(), bundle, {}))))


def make_grid(
    app: "Starlette", address: str, token: str, headers: Mapping[str, str], on_send: Callable[[Message], object]
) -> "HttpGrid":
    """Make Flower's grid for the task of `token`; call `on_send` with every message before it is sent.

    A call fails with one of FAILURES at the first error; Flower's own grid would retry indefinitely, or interrupt this
    process. Only complete answers are pulled; Flower's would wait minutes for the rest.
    """
    from flwr.superlink.grid import HttpGrid

    class LocalGrid(HttpGrid):
        def _connect(self) -> None:
            self._retry_invoker = None  # type: ignore[assignment]
            super()._connect()
            _local(self._client, headers)

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            for message in messages:
                on_send(message)
            return super().push_messages(messages)

        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            state = app.state.linkstate_factory.state()
            ready = [number for number in message_ids if not _is_on_its_way(state, number)]
            return super().pull_messages(ready) if ready else []

    return LocalGrid(address, insecure=True, token=token)


def _is_on_its_way(state: Any, number: str) -> bool:
    """True if a connected site is still sending its answer to a message.

    Also deliver a message again that the site did not confirm because the connection broke.
    """
    from flwr.supercore.corestate import in_memory_corestate

    with state.lock:
        message, current = state.message_ins_store.get(number), in_memory_corestate.now()  # type: ignore[attr-defined]
        node = state.nodes.get(message.metadata.dst_node_id) if message else None
        if message is None or node is None or (node.online_until or 0.0) <= current.timestamp():
            return False
        delivered = message.metadata.delivered_at
        if delivered and datetime.fromisoformat(delivered) + _UNTAKEN < current and state.object_store.get(number):
            message.metadata.delivered_at = ""
        answer = state.message_ins_id_to_message_res_id.get(number, "")
        session = state._object_push_sessions.get(state._object_push_session_by_root.get(answer, ""))
    return session is not None and bool(session.pending_object_ids) and session.expires_at > current


def begin_run(app: "Starlette", grid: "HttpGrid") -> Context:
    """Do in this process what Flower's own server process does before it calls the ServerApp.

    The run's token never expires, because the machine may sleep; Flower's would expire seconds after the last
    heartbeat. A part of a message that is sent again after a timeout counts as stored: Flower would refuse it, and its
    sender would never send the rest.
    """
    from flwr.common.serde import context_from_proto, run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest
    from flwr.supercore.task_identity import TaskIdentity

    given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
    state = app.state.linkstate_factory.state()
    state.task_token_store[given.task_id].active_until = _FOREVER
    store = state.store_object

    def store_object(run_id: int, session_id: str, object_id: str, content: bytes) -> bool:
        return store(run_id, session_id, object_id, content) or state.object_store.get(object_id) == content

    state.store_object = store_object
    context = context_from_proto(given.context)
    TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
    TaskIdentity.node_id = context.node_id
    grid.set_run(run_from_proto(given.run))
    return context


def end_run(grid: "HttpGrid", context: Context, status: str, details: str) -> None:
    """Report the final status of the run to SuperLink. Raises FAILURES."""
    from flwr.common.serde import context_to_proto
    from flwr.proto.runtime_pb2 import PushTaskOutputRequest

    output = PushTaskOutputRequest(context=context_to_proto(context), sub_status=status, details=details)
    grid._runtime_client.PushTaskOutput(output)


# The site: SuperNode and its worker ----------------------------------------------------------------------------


def run_supernode(client: type[FleetHttpClient], invoker: Callable[[], RetryInvoker]) -> None:
    """Run Flower's SuperNode with the options in `sys.argv` and these classes for connection and retries."""
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    # It asks for a message every 3 s, and each round has two to six in turn.
    vars(start_client_internal).update(time=SimpleNamespace(sleep=lambda seconds: time.sleep(seconds / 3)))
    vars(fleet_http_connection).update(FleetHttpClient=client, make_simple_http_retry_invoker=invoker)
    flower_supernode()


def send_heartbeat(client: RuntimeHttpClient) -> None:
    """Report to SuperNode that its message is in progress. Raises httpx.HTTPError."""
    client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
