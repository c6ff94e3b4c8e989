"""Whoever can reach the server's port, with a key or without one, and what that may cost the server."""

import asyncio
import shutil
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict
from flwr.server.superlink.linkstate import in_memory_linkstate
from flwr.supercore.corestate import in_memory_corestate
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.task_identity import TaskIdentity

from fedotp.errors import FedotpError, TransientError
from fedotp.flower.keys import ServerKeys, make_keys
from fedotp.flower.link import _access, _superlink
from fedotp.flower.link._access import ConnectionLimits, LocalAccess, SiteAccess
from fedotp.flower.link._listener import Listener
from fedotp.flower.link._superlink import free_port, superlink
from fedotp.flower.status import Status, StatusAddress, serve_status

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatch:DeprecationWarning")  # of Flower's own

PUSH = "/v1/fleet/push-object"


# The door ----------------------------------------------------------------------------------------------------


@contextmanager
def listening(limits: ConnectionLimits) -> Iterator[int]:
    """A listener with `limits` that answers every request; its port."""
    listener = Listener(limits, "127.0.0.1", 0)
    listener.serve(SiteAccess(Flower(), None, limits), lifespan="off")
    try:
        yield listener.port
    finally:
        listener.stop()
        listener.close()


def connect(port: int, stack: ExitStack) -> socket.socket:
    made = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
    made.settimeout(20)
    return made


def is_answered(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"GET /v1/fleet/ HTTP/1.1\r\nhost: localhost\r\nx-forwarded-for: 192.0.2.1\r\n\r\n")
        return connection.recv(1000).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def test_idle_strangers_make_room_for_sites_and_a_site_that_is_in_stays_in() -> None:
    with listening(ConnectionLimits(8, no_key=600)) as port, ExitStack() as stack:
        site = connect(port, stack)
        assert is_answered(site)
        strangers = [connect(port, stack) for _ in range(30)]
        assert is_answered(connect(port, stack)), "a newcomer finds a place"
        assert is_answered(site)
        assert strangers[0].recv(1) == b"", "the oldest stranger was sent away"


def test_a_connection_that_shows_no_key_in_time_is_closed() -> None:
    with listening(ConnectionLimits(8, no_key=0.2)) as port, ExitStack() as stack:
        stranger, site = connect(port, stack), connect(port, stack)
        assert is_answered(site)
        time.sleep(0.3)
        connect(port, stack)
        assert stranger.recv(1) == b""
        assert is_answered(site)


def test_one_key_cannot_take_all_places() -> None:
    limits = ConnectionLimits(8, most_of_one=2)
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(4)]
        for number, (near, far) in enumerate(pairs):
            stack.callback(near.close)
            stack.callback(far.close)
            assert limits.enter(near, ("127.0.0.1", number))
        assert [limits.admit(("127.0.0.1", number), b"one") for number in range(3)] == [True, True, False]
        assert limits.admit(("127.0.0.1", 3), b"another")


# The gate ----------------------------------------------------------------------------------------------------


class Site:
    """Signs requests as Flower's SuperNode does."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP384R1())
        self.key = public_key_to_bytes(self._private.public_key())

    def headers(self, at: datetime | None = None, signature: bytes | None = None) -> list[tuple[bytes, bytes]]:
        signed = (at or datetime.now(UTC)).isoformat()
        signature = signature or sign_message(self._private, signed.encode())
        return [
            (b"flwr-public-key", b64encode(self.key)),
            (b"flwr-signature", b64encode(signature)),
            (b"flwr-timestamp", signed.encode()),
        ]


class Flower:
    """Stands for Flower's application: it reads whatever comes, and says so."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


def ask(gate: Any, path: str, headers: list[tuple[bytes, bytes]], parts: Iterator[bytes]) -> tuple[int, bytes]:
    """Send a request whose body comes in `parts`, read as the gate asks for them; status and answer."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        part = next(parts, None)
        return {"type": "http.request", "body": part or b"", "more_body": part is not None}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "client": ("127.0.0.1", 1)}
    asyncio.run(gate(scope, receive, send))
    return said[0]["status"], said[1]["body"]


def endless(read: list[int], size: int = 100_000) -> Iterator[bytes]:
    """A body without end; `read` counts its parts as they are taken."""
    while True:
        read.append(size)
        yield bytes(size)


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def flower() -> Flower:
    return Flower()


@pytest.fixture
def gate(site: Site, flower: Flower) -> SiteAccess:
    return SiteAccess(flower, {site.key: "north"}, ConnectionLimits())


def sent(n_bytes: int = 0) -> Message:
    """A message of the server's with so many bytes of arrays."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    record = ArrayRecord({"shared": Array("uint8", (n_bytes,), "numpy.ndarray", bytes(n_bytes))})
    return Message(RecordDict({"arrays": record}), dst_node_id=1, message_type=MessageType.TRAIN)


STRANGERS: dict[str, Callable[[Site], list[tuple[bytes, bytes]]]] = {
    "no key": lambda _site: [],
    "another key": lambda _site: Site().headers(),
    "a key that is none": lambda _site: [(b"flwr-public-key", b"\xff\xfe{"), (b"flwr-signature", b"-")],
    "a known key and a wrong signature": lambda site: site.headers(signature=b"s"),
    "a known key and another's signature": lambda site: [*site.headers()[:1], *Site().headers()[1:]],
    "another key, of which Flower reads the first": lambda site: [*Site().headers(), *site.headers()],
    "an old signature": lambda site: site.headers(datetime.now(UTC) - timedelta(hours=1)),
    "a signature from the future": lambda site: site.headers(datetime.now(UTC) + timedelta(minutes=2)),
}


@pytest.mark.parametrize("who", STRANGERS)
def test_nothing_of_a_body_is_read_before_a_registered_key_was_shown(
    who: str, gate: SiteAccess, site: Site, flower: Flower
) -> None:
    read: list[int] = []
    status, _ = ask(gate, PUSH, STRANGERS[who](site), endless(read))
    assert status in (401, 412)
    assert (read, flower.bodies) == ([], [])


def test_a_site_whose_clock_is_wrong_is_named_in_the_log(
    gate: SiteAccess, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(_access.log, "warning", lambda words, *values: said.append(words % values))
    for _ in range(3):
        ask(gate, PUSH, site.headers(datetime.now(UTC) + timedelta(minutes=2)), iter([b""]))
    (line,) = said
    assert line.startswith("site north: request refused: its clock differs by +1")


@pytest.mark.parametrize("path", [PUSH, "/v1/fleet/push-messages"])
def test_a_registered_sites_endless_body_is_read_up_to_a_limit_only(
    path: str, gate: SiteAccess, site: Site, flower: Flower
) -> None:
    gate.expect(site.key, sent())
    read: list[int] = []
    assert ask(gate, path, site.headers(), endless(read))[0] == 413
    assert sum(read) < 7 << 20
    assert flower.bodies == []
    read.clear()
    announced = [*site.headers(), (b"content-length", b"1500000000")]
    assert ask(gate, path, announced, endless(read))[0] == 413
    assert read == []


def test_a_key_that_is_revoked_while_its_body_comes_is_refused(gate: SiteAccess, site: Site, flower: Flower) -> None:
    def parts() -> Iterator[bytes]:
        gate.known = {}
        yield b"update"

    gate.expect(site.key, sent())
    assert ask(gate, PUSH, site.headers(), parts())[0] == 401
    assert flower.bodies == []


def test_a_site_pushes_what_an_answer_can_be_and_not_a_record_of_a_gigabyte(
    gate: SiteAccess, site: Site, flower: Flower
) -> None:
    assert ask(gate, PUSH, site.headers(), iter([bytes(1000)]))[0] == 413, "nobody asked it"
    for _ in range(2):  # each message of the server's allows an answer
        gate.expect(site.key, sent(1 << 20))
        flower.bodies.clear()
        statuses = [ask(gate, PUSH, site.headers(), iter([bytes(5 << 20)]))[0] for _ in range(10)]
        assert statuses == [200, 200, *[413] * 8]
        assert sum(map(len, flower.bodies)) <= (8 + 4) << 20
    gate.expect(site.key, sent())  # it may begin to answer a few times
    statuses = [ask(gate, "/v1/fleet/push-messages", site.headers(), iter([b"m"]))[0] for _ in range(12)]
    assert statuses == [200] * 8 + [413] * 4


@pytest.mark.parametrize("secret", [None, b"", b"guessed"])
def test_the_control_interface_answers_to_this_process_only(secret: bytes | None, flower: Flower) -> None:
    gate = LocalAccess(flower, "the secret", ConnectionLimits())
    headers = [] if secret is None else [(b"fedotp-secret", secret)]
    assert ask(gate, "/v1/control/stop-run", headers, iter([b""]))[0] == 404
    assert flower.bodies == []
    assert ask(gate, "/v1/control/list-runs", [(b"fedotp-secret", b"the secret")], iter([b""]))[0] == 200


# The link ----------------------------------------------------------------------------------------------------


def test_a_link_full_of_strangers_still_listens_and_other_users_cannot_stop_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_superlink, "ConnectionLimits", lambda: ConnectionLimits(16, no_key=600))
    make_keys(tmp_path / "keys", ["localhost"], ["north"])
    keys = ServerKeys.read(tmp_path / "keys/server")
    port = free_port()
    with superlink("127.0.0.1", port, keys) as link, link.run() as grid, ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        with httpx.Client(verify=ssl.create_default_context(cafile=keys.ca), trust_env=False) as stranger:
            answer = stranger.post(f"https://localhost:{port}/v1/fleet/pull-messages", content=b"", timeout=30)
            assert answer.status_code == 401
            assert stranger.get(f"https://localhost:{port}/v1/control/list-runs", timeout=30).status_code == 404
            stopping = stranger.post(f"http://{link.local}/v1/control/stop-run", content=b"\x08\x01", timeout=30)
            assert stopping.status_code == 404
        assert list(grid.get_nodes()) == []
        assert len(link._limits) <= 16


def test_a_body_without_a_key_ends_its_connection(tmp_path: Path) -> None:
    """A stranger is answered and cut off; it cannot go on sending, and what sockets hold is far below 64 MiB."""
    make_keys(tmp_path / "keys", ["localhost"], ["north"])
    keys = ServerKeys.read(tmp_path / "keys/server")
    port = free_port()
    context = ssl.create_default_context(cafile=keys.ca)
    with superlink("127.0.0.1", port, keys), ExitStack() as stack:
        stranger = context.wrap_socket(connect(port, stack), server_hostname="localhost")
        stack.enter_context(stranger)
        head = "POST /v1/fleet/push-object HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000000\r\n\r\n"
        stranger.sendall(head.encode())
        assert stranger.recv(10_000).startswith(b"HTTP/1.1 401")
        n_sent = 0
        with suppress(OSError):
            while n_sent < 256 << 20:
                stranger.sendall(bytes(1 << 20))
                n_sent += 1 << 20
        assert n_sent < 64 << 20


def test_a_running_server_shows_that_its_certificate_expires_and_keeps_it_if_a_copy_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_superlink, "_REREAD", 0.5)
    for name in ("keys", "other"):
        make_keys(tmp_path / name, ["localhost"], ["north"], days=20)
    keys, port, status = ServerKeys.read(tmp_path / "keys/server"), free_port(), Status("server", ["north"], {})
    context = ssl.create_default_context(cafile=keys.ca)
    with superlink("127.0.0.1", port, keys), serve_status(StatusAddress("127.0.0.1", 0), status), ExitStack() as stack:
        shutil.copy(tmp_path / "other/server/server.crt", keys.certificate)
        end = time.monotonic() + 20
        while len(status.as_dict()["warnings"]) < 2 and time.monotonic() < end:
            time.sleep(1)  # two looks at the files
        shown = [text.rpartition("server.crt ")[2] for _, _, text in status.as_dict()["warnings"]]
        assert len(shown) == 2, shown
        assert shown[0].endswith("in 19 days; renew it")
        assert shown[1].startswith("does not match server.key; ")
        stack.enter_context(context.wrap_socket(connect(port, stack), server_hostname="localhost"))


def test_a_run_outlives_sleep_and_a_clock_that_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stepped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=1)

    with superlink("127.0.0.1", free_port(), None) as link, link.run():
        state = link._app.state.linkstate_factory.state()
        (record,) = state.task_token_store.values()
        assert record.active_until.year == 9999
        before = datetime.now(UTC)
        monkeypatch.setattr(_superlink, "datetime", Stepped)
        monkeypatch.setattr("flwr.supercore.date.datetime.datetime", Stepped)
        for module in (in_memory_linkstate, in_memory_corestate):
            assert abs((module.now() - before).total_seconds()) < 3600  # type: ignore[attr-defined]


def test_a_port_that_is_taken_may_be_free_later_and_one_that_is_forbidden_may_not() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(TransientError, match="cannot listen at"), superlink("127.0.0.1", port, None):
            pass
    with pytest.raises(FedotpError, match="--host or --port") as refused, superlink("no such host", 80, None):
        pass
    assert not isinstance(refused.value, TransientError)
