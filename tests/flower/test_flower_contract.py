"""What fedotp assumes of Flower's insides (`fedotp.flower.link._flwr`), each assumption in a test of its own.

Another version of Flower should fail here, in seconds and with a word on what leans on it, rather than in real
processes that wait for each other.
"""

import ast
import asyncio
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, Error, Message, MessageType, RecordDict
from flwr.common import constant
from flwr.common.serde import context_from_proto, context_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import PullObjectRequest
from flwr.server.superlink.linkstate import in_memory_linkstate
from flwr.supercore import constant as supercore_constant
from flwr.supercore.corestate import in_memory_corestate
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.routers.fleet.node_auth import authenticate_node
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode
from flwr.supernode.main import create_app as make_supernode_app
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from flwr.supernode.nodestate import NodeStateFactory
from starlette.exceptions import HTTPException

import fedotp.flower
from fedotp.flower._defaults import quiet_flower
from fedotp.flower.keys import SiteKeys
from fedotp.flower.link import _access, _flwr, _superlink, _supernode
from fedotp.flower.link._superlink import SuperLink, free_port, superlink
from fedotp.flower.link._supernode import SuperNode
from fedotp.flower.link._supernode_main import FleetClient
from fedotp.flower.link._transport import Transport

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatch:DeprecationWarning")  # of Flower's own

PUBLIC = {"flwr", "flwr.app", "flwr.clientapp", "flwr.serverapp"}
ADAPTER = Path(_flwr.__file__)


# One adapter ---------------------------------------------------------------------------------------------------


def insides(code: str) -> set[str]:
    """The modules of Flower that `code` imports, at whatever place, beyond the documented ones."""
    nodes = list(ast.walk(ast.parse(code)))
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    named |= {
        f"flwr.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "flwr"
        for alias in node.names
        if not alias.name.startswith("__")
    }
    return {name for name in named if name.partition(".")[0] == "flwr"} - PUBLIC


def test_one_module_alone_uses_flowers_insides() -> None:
    modules = sorted(Path(fedotp.flower.__file__).parent.rglob("*.py"))
    users = {path.name: found for path in modules if (found := insides(path.read_text()))}
    assert set(users) == {ADAPTER.name}, f"they belong into {ADAPTER.name}: {users}"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import flwr\nfrom flwr.app import Message\nfrom flwr.serverapp import Grid", set()),
        ("from flwr import __version__", set()),
        ("def f():\n    from flwr.supercore.fab import Fab", {"flwr.supercore.fab"}),
        ("import flwr.common.constant as c", {"flwr.common.constant"}),
        ("from flwr import supercore", {"flwr.supercore"}),
        ("from flwr.app.message import make_message", {"flwr.app.message"}),
    ],
)
def test_flowers_insides_are_told_from_its_interface(code: str, found: set[str]) -> None:
    assert insides(code) == found


def test_a_site_and_its_supernode_do_not_load_the_servers_part() -> None:
    code = (
        "import sys, fedotp.flower.link._supernode_main, fedotp.flower.link; "
        "print([name for name in sys.modules if name.startswith(('flwr.superlink', 'torch'))])"
    )
    said = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]", f"{ADAPTER.name} imports it where it is used"


# Signed requests: the gate -------------------------------------------------------------------------------------


class Signer:
    """A site's key, and requests that Flower itself signs with it."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP384R1())
        self.public = public_key_to_bytes(self.private.public_key())

    def headers(self) -> dict[str, str]:
        seen: list[httpx.Request] = []

        def keep(context: Any) -> httpx.Response:
            seen.append(context.request)
            return httpx.Response(200)

        context: Any = SimpleNamespace(request=httpx.Request("POST", "http://here"))
        NodeAuthHttpInterceptor(self.private, self.private.public_key()).intercept(context, keep)
        return {name.lower(): value for name, value in seen[0].headers.items()}


def test_what_flower_signs_is_what_the_gate_looks_at() -> None:
    site = Signer()
    headers = site.headers()
    assert _access._claimed_key(headers) == site.public, "the gate knows sites by this header"
    assert _access._has_signed(site.public, headers), "the gate lets in who has signed the time like this"
    assert _access._seconds_away(headers) is None
    assert not _access._has_signed(Signer().public, headers)


def test_a_key_in_opensshs_text_is_the_key_in_flowers_requests() -> None:
    site = Signer()
    text = site.private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert _flwr.key_bytes(text.decode()) == site.public, "sites.toml names the keys that the gate lets in"


@pytest.mark.parametrize("away", [_flwr.EARLIEST - 5, _flwr.EARLIEST + 5, -1, _flwr.LATEST - 5, _flwr.LATEST + 5])
def test_flower_and_the_gate_agree_on_whose_clock_is_wrong(away: int, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Signer()
    monkeypatch.setattr(
        "flwr.supernode.node_auth_http_interceptor.now", lambda: datetime.now(UTC) + timedelta(seconds=away)
    )
    headers = site.headers()
    request: Any = SimpleNamespace(
        headers=headers, state=SimpleNamespace(protobuf_request=ActivateNodeRequest(public_key=site.public))
    )
    accepted = True
    try:
        authenticate_node(request)
    except HTTPException:
        accepted = False
    assert (_access._seconds_away(headers) is None) is accepted, "the gate names a site whose clock Flower would refuse"


def test_the_gates_paths_are_flowers() -> None:
    app = _flwr.make_app("127.0.0.1:1", "127.0.0.1", 1, with_keys=True)
    paths = set(app.openapi()["paths"])
    assert {*_access._LONGEST, f"{_access._FLEET}activate-node"} <= paths, "the gate bounds what is sent to these"
    assert any(path.startswith("/v1/control/") for path in paths), "the gate keeps sites away from these"


def test_a_piece_of_an_array_fits_through_the_gate() -> None:
    assert _access._LONGEST["/v1/fleet/push-object"] > constant.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE + 65_536


# SuperNode -----------------------------------------------------------------------------------------------------


class Ended(BaseException):
    """SuperNode has ended, with these wire."""


def supernode(
    answer: Callable[[httpx.Request], httpx.Response],
    monkeypatch: pytest.MonkeyPatch,
    *,
    then: Callable[[Callable[[], bool]], object] = lambda beat: None,
) -> None:
    """Connect as SuperNode does to a server that is played by `answer`; `then` is given its heartbeat."""
    beats: list[Callable[[], bool]] = []

    class Played(FleetClient):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._client.close()
            self._client = httpx.Client(transport=httpx.MockTransport(answer), event_hooks=self._client.event_hooks)

    def sender(beat: Callable[[], bool]) -> SimpleNamespace:
        beats.append(beat)
        return SimpleNamespace(start=str, stop=str, is_running=False)

    def end(_code: object, words: str) -> None:
        raise Ended(words)

    monkeypatch.setattr(fleet_http_connection, "HeartbeatSender", sender)
    monkeypatch.setattr(fleet_http_connection, "flwr_exit", end)
    monkeypatch.setattr(fleet_http_connection, "FleetHttpClient", Played)
    with fleet_http_connection.http_request_response("server:1", insecure=True):
        then(beats[0])


def refusing(payload: dict[str, Any], status: int) -> Callable[[httpx.Request], httpx.Response]:
    """A server that refuses to activate a node."""

    def answer(request: httpx.Request) -> httpx.Response:
        refused = request.url.path.endswith("activate-node")
        return httpx.Response(status, json=payload) if refused else httpx.Response(200)

    return answer


def test_supernode_prints_why_its_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Ended) as ended:
        supernode(refusing(*_flwr.refusal_of_key(_access.UNREGISTERED)), monkeypatch)
    assert _access.UNREGISTERED in str(ended.value), (
        "a site gives up where SuperNode prints this, and tries on elsewhere"
    )


def test_supernode_prints_the_number_of_a_connection_that_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    error = FlowerError(ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED, "secret")
    with pytest.raises(Ended) as ended:
        supernode(refusing(error.to_json("SuperNode activation failed."), 412), monkeypatch)
    assert _flwr.HOLDS_A_CONNECTION in str(ended.value), "a site tells of another one with its key by this"


def test_supernode_says_that_the_server_was_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = SendNodeHeartbeatResponse(success=False).SerializeToString()
    sign = next(sign for sign, meaning in _supernode.RETRIED.items() if meaning.startswith("the server was restarted"))
    said: list[str] = []

    def then(beat: Callable[[], bool]) -> None:
        with pytest.raises(RuntimeError) as error:
            beat()
        said.append(str(error.value))

    supernode(lambda _: httpx.Response(200, content=unknown), monkeypatch, then=then)
    assert sign in said[0], "a site tells so by this"


def test_supernode_says_that_it_was_ended() -> None:
    sign = next(sign for sign, meaning in _supernode.RETRIED.items() if "the server ended the connection" in meaning)
    assert f"SuperNode {sign}" in inspect.getsource(start_client_internal), "a site tells of clocks by this"


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        (_supernode.ACTIVATE, ActivateNodeRequest()),
        (_supernode.HEARTBEAT, SendNodeHeartbeatRequest()),
        (_supernode.PULL, PullMessagesRequest()),
        ("PullObject", PullObjectRequest()),
    ],
)
def test_every_call_of_supernodes_connection_goes_one_way(
    call: str, request_: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def send(self: Any, context: Any, *, stream: bool = False) -> httpx.Response:
        seen.append(context)
        return httpx.Response(200, request=context.request)

    monkeypatch.setattr(_flwr.FleetHttpClient, "_send", send)
    with _flwr.FleetHttpClient("http://127.0.0.1:1") as client:
        getattr(client, call)(request_)
    (context,) = seen
    assert context.rpc_method.rpartition("/")[2] == call, "FleetClient tells the site the names of calls, by _send"


def test_supernodes_connection_is_an_httpx_client_that_can_be_bounded() -> None:
    with _flwr.FleetHttpClient("http://127.0.0.1:1") as client:
        assert isinstance(client._client, httpx.Client), "FleetClient sets its redirects, encoding and hooks"


def test_supernode_uses_what_stands_in_for_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    class Used(Exception):  # noqa: N818
        pass

    def invoker() -> Any:
        used.append("invoker")
        return SimpleNamespace()

    class Client:
        @staticmethod
        def from_server_address(*_: object, **__: object) -> Any:
            used.append("client")
            raise Used

    def start() -> None:
        with start_client_internal.http_request_response("server:1", insecure=True):
            pass

    for name in ("FleetHttpClient", "make_simple_http_retry_invoker"):
        monkeypatch.setattr(fleet_http_connection, name, getattr(fleet_http_connection, name))  # put back at the end
    monkeypatch.setattr(sys.modules["flwr.supernode.cli.flower_supernode"], "flower_supernode", start)
    with pytest.raises(Used):
        _flwr.run_supernode(Client, invoker)  # type: ignore[arg-type]
    assert sorted(used) == ["client", "invoker"], "run_supernode puts ours in their place"


def test_the_retry_invoker_can_be_made_patient() -> None:
    invoker = _flwr.make_simple_http_retry_invoker()
    assert invoker.should_giveup is not None, "patient_invoker wraps it"
    assert invoker.should_giveup(httpx.ConnectTimeout("_ssl.c:989: The handshake operation timed out (TLS)"))
    invoker.should_giveup, invoker.max_tries, tries = (lambda _error: True), 5, []

    def call() -> None:
        tries.append(1)
        raise httpx.ConnectError("nobody")

    with pytest.raises(httpx.ConnectError):
        invoker.invoke(call)
    assert len(tries) == 1, "what patient_invoker sets is what is asked"


@pytest.mark.parametrize("keys", [None, SiteKeys(Path("ca.crt"), Path("site.key"), "north", "server:1")])
def test_flower_takes_the_options_that_a_site_gives_supernode(keys: SiteKeys | None, tmp_path: Path) -> None:
    node = SuperNode("server:1", keys, tmp_path)
    given = _parse_args_run_supernode().parse_args(node._options())
    assert (given.superlink, given.isolation, f"{given.host}:{given.port}") == ("server:1", "process", node.address)
    assert given.superexec_auth_secret_file == str(node._secret_file)
    assert given.insecure is (keys is None)
    assert (given.root_certificates, given.auth_supernode_private_key) == (
        ("ca.crt", "site.key") if keys else (None, None)
    )


def test_a_site_waits_for_more_than_flowers_heartbeats() -> None:
    interval = constant.HEARTBEAT_DEFAULT_INTERVAL
    assert 3 * interval <= _supernode._SILENCE, "no answer for so long means that nobody is there"
    assert constant.HEARTBEAT_PATIENCE * interval < _supernode._HELD, "so long a dead connection is held"


# The worker beside it ------------------------------------------------------------------------------------------


def near(app: Any) -> httpx.Client:
    """Speaks with an application in this process."""

    async def ask(request: httpx.Request) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.request(request.method, request.url, headers=request.headers, content=request.content)

    def answer(request: httpx.Request) -> httpx.Response:
        said = asyncio.run(ask(request))
        return httpx.Response(said.status_code, headers=said.headers, content=said.content)

    return httpx.Client(transport=httpx.MockTransport(answer))


@pytest.mark.parametrize(("secret", "status"), [(b"s" * 32, 200), (b"t" * 32, 401), (b"", 401)])
def test_supernode_hands_tasks_to_who_knows_the_secret(secret: bytes, status: int) -> None:
    app = make_supernode_app(NodeStateFactory(ObjectStoreFactory()), superexec_auth_secret=b"s" * 32)
    statuses: list[int] = []
    with closing(_flwr.runtime_client("127.0.0.1:1", "test", secret=secret)) as client:
        client._client.close()
        client._client = near(app)
        client._client.event_hooks = {"response": [lambda response: statuses.append(response.status_code)]}
        with suppress(httpx.HTTPStatusError):
            assert _flwr.acquire_task(client, _flwr.TaskType.CLIENT_APP) == "", "there is none yet"
    assert statuses == [status], "the worker gets its tasks, and no other user of a site's machine does"


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (_flwr.pull_task_input, ["client"]),
        (_flwr.push_message, ["client", "message", "context"]),
        (_flwr.push_task_output, ["client", "context", "sub_status", "details"]),
    ],
)
def test_flowers_own_steps_of_a_worker(function: Callable[..., Any], names: list[str]) -> None:
    assert list(inspect.signature(function).parameters) == names, "Executor takes and answers messages by them"


def test_a_task_is_had_as_message_and_context_first() -> None:
    hint = inspect.get_annotations(_flwr.pull_task_input, eval_str=True)["return"]
    assert hint.__args__[:2] == (Message, Context), "Executor takes the first two"
    assert len(hint.__args__) == 4


def test_signs_of_life_are_given_until_they_are_stopped() -> None:
    beat = threading.Event()

    def tell() -> bool:
        beat.set()
        return True

    sender = _flwr.HeartbeatSender(tell)
    sender.start()
    assert beat.wait(60), "SuperNode gives a task up whose worker says nothing"
    sender.stop()
    assert not sender.is_running


def test_a_context_survives_flowers_wire() -> None:
    context = Context(run_id=1, node_id=2, node_config={"a": 1}, state=RecordDict(), run_config={}, series_id=3)
    assert context_from_proto(context_to_proto(context)) == context, "begin_run reads it and end_run sends it back"
    context.node_config = {"own": "yes"}  # as a site does, whatever came with the message
    assert context.node_config == {"own": "yes"}


# SuperLink and the server's part of a run ----------------------------------------------------------------------


@pytest.fixture
def link() -> Iterator[SuperLink]:
    with superlink("127.0.0.1", free_port(), None) as link:
        yield link


@pytest.fixture
def state(link: SuperLink, monkeypatch: pytest.MonkeyPatch) -> Any:
    for module in (in_memory_linkstate, in_memory_corestate):
        monkeypatch.setattr(module, "now", module.now)  # type: ignore[attr-defined]  # put back at the end
    return link._app.state.linkstate_factory.state()


def later(seconds: float) -> Callable[[], datetime]:
    return lambda: datetime.now(UTC) + timedelta(seconds=seconds)


def test_superlink_keeps_everything_in_memory_and_starts_nothing(link: SuperLink, state: Any) -> None:
    assert isinstance(state, in_memory_linkstate.InMemoryLinkState), "use_clock and begin_run know this one"
    lifespan = link._app.state.superlink_lifespan
    assert lifespan.superexec_process is None, "no code of a bundle is executed at the server"
    assert lifespan.grpc_servers == [], "no other port is open"


def test_a_run_is_handed_to_this_process_and_its_token_has_no_end(link: SuperLink, state: Any) -> None:
    with link.run() as grid:
        endless = grid._token  # type: ignore[attr-defined]
        with closing(_flwr.control_client(link.local, "test", link._headers)) as control:
            _flwr.start_run(control, _superlink._BUNDLE)
        with closing(_flwr.runtime_client(link.local, "test", headers=link._headers)) as runtime:
            other = _flwr.acquire_task(runtime, _flwr.TaskType.SERVER_APP)
        assert other not in ("", endless), "a run that was started waits for who acquires it"
        _flwr.use_clock(later(365 * 24 * 3600))
        assert state.get_task_by_token(endless) is not None, "a server that slept goes on with its run"
        assert state.get_task_by_token(other) is None, "or Flower looks at something else than what begin_run sets"
        assert list(grid.get_nodes()) == []


def test_messages_are_this_runs_once_it_has_begun(link: SuperLink) -> None:
    with link.run():
        message = Message(RecordDict(), dst_node_id=5, message_type=MessageType.QUERY)
        assert message.metadata.run_id == TaskIdentity.run_id, "begin_run says whose they are"
        assert message.metadata.src_node_id == constant.SUPERLINK_NODE_ID


def test_whether_a_site_is_there_goes_by_the_clock_that_is_set(state: Any) -> None:
    node = state.create_node("nobody", "nobody", b"a key", 30)
    _flwr.use_clock(later(0))
    assert state.activate_node(node, 30)
    _flwr.use_clock(later(59))
    assert [info.status for info in state.get_node_info(node_ids=[node])] == ["online"]
    _flwr.use_clock(later(61))
    assert [info.status for info in state.get_node_info(node_ids=[node])] == ["offline"], "use_clock is what it goes by"


def test_a_site_that_is_restarted_comes_at_another_moment(state: Any) -> None:
    node = state.create_node("nobody", "nobody", b"another key", 30)
    came = set()
    for seconds in (0, 100):
        _flwr.use_clock(later(seconds))
        state.activate_node(node, 30)
        grid: Any = SimpleNamespace(get_nodes=lambda: state.get_node_info(node_ids=[node]))
        came.add(Transport(grid, str).online()[node])
    assert len(came) == 2, "Transport asks a site again that has come anew"


def test_an_answer_that_never_comes_is_an_error_that_is_not_the_sites(link: SuperLink, state: Any) -> None:
    node = state.create_node("nobody", "nobody", b"a third key", 30)
    state.activate_node(node, 30)
    with link.run() as grid:
        transport = Transport(grid, str)
        numbers = transport.send(
            [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY, group_id="1")]
        )
        assert list(numbers.values()) == [node]
        assert transport.collect(numbers) == {}
        _flwr.use_clock(later(1000))
        (reply,) = transport.collect(numbers).values()
    assert reply.error.code in _flwr.LOST, (
        "Transport asks again where a site was lost, and the server refuses no such site"
    )
    assert _flwr.ErrorCode.CLIENT_APP_RAISED_EXCEPTION not in _flwr.LOST


def test_the_local_listener_needs_the_secret_that_goes_with_every_request(link: SuperLink) -> None:
    with httpx.Client(trust_env=False) as stranger:
        assert stranger.post(f"http://{link.local}/v1/runtime/acquire-task").status_code == 404
    client = _flwr.runtime_client(link.local, "test", headers=link._headers)
    assert _flwr.acquire_task(client, _flwr.TaskType.SERVER_APP) == ""
    client.close()


def test_the_bundle_can_be_built(tmp_path: Path) -> None:
    sent: list[Any] = []
    _flwr.start_run(SimpleNamespace(StartRun=sent.append), _superlink._BUNDLE)  # type: ignore[arg-type]
    (request,) = sent
    assert request.fab.content.startswith(b"PK"), "a run needs a bundle, though nobody executes it"


def test_who_has_sent_a_message_can_be_set() -> None:
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    asked = Message(RecordDict(), dst_node_id=5, message_type=MessageType.QUERY)
    reply = Message(Error(0, "none"), reply_to=asked)
    _flwr.set_sender(reply, 77)
    assert reply.metadata.src_node_id == 77, "Transport knows whose an answer is, whatever it says itself"


# Quiet ---------------------------------------------------------------------------------------------------------


def test_flower_prints_nothing_of_its_own() -> None:
    code = (
        "import logging, flwr.supercore\n"
        "from fedotp.flower.link import silence\n"
        "flwr.supercore.log(logging.ERROR, 'printed')\n"
        "silence()\n"
        "flwr.supercore.log(logging.ERROR, 'not printed')\n"
    )
    said = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert "printed" in said.stderr
    assert "not printed" not in said.stderr, "no key, no number of a node and no colour of Flower's reaches the log"


def test_flower_reads_the_variables_that_keep_it_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environment)
    quiet_flower(tmp_path)
    known = {
        supercore_constant.FLWR_DISABLE_UPDATE_CHECK,
        constant.FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION,
        constant.FLWR_HOME,
    }
    assert known <= set(environment), "nothing is looked for on the network, installed, or written elsewhere"


def test_flower_is_told_about_telemetry_before_it_is_imported() -> None:
    code = (
        "import fedotp.flower.site._app, fedotp.flower.link._supernode, fedotp.flower.server._serve; "
        "from flwr.supercore import telemetry; print(telemetry.FLWR_TELEMETRY_ENABLED)\n"
        "import importlib, os; os.environ['FEDOTP_FLOWER_TELEMETRY'] = '1'; importlib.reload(fedotp.flower)\n"
        "print(importlib.reload(telemetry).FLWR_TELEMETRY_ENABLED)"
    )
    environment = {key: value for key, value in os.environ.items() if "TELEMETRY" not in key}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["0", "1"]
