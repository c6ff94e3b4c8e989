"""A site's link to its server: it bears silence, is never deaf, and takes no more than fits."""

import gzip
import http.server
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.message_pb2 import PullObjectRequest
from flwr.supercore.retry import make_simple_http_retry_invoker
from near_sites import make_deployable
from real_processes import make_study, processes
from stalling_proxy import stalling_proxy

from fedotp.flower.link import _flwr, _supernode
from fedotp.flower.link import _supernode_main as main
from fedotp.flower.link._superlink import free_port
from fedotp.flower.link._supernode import AnswerTimer, Executor, SuperNode, _send_heartbeat

SERVER = "fed.example.org:8000"
CONNECTED = "print('ActivateNode', flush=True); import time; time.sleep(1000)"
HELD = "import sys; sys.stderr.write('[code: 2004] no'); sys.exit(1)"


class Watched:
    """A SuperNode that is played by a few lines of Python, and watched by a clock that the test moves."""

    def __init__(self, folder: Path, code: str) -> None:
        self.now = 0.0
        self.node = SuperNode(SERVER, None, folder, silence=90, program=["-c", code], clock=lambda: self.now)
        self.pass_seconds(2)

    @property
    def process(self) -> "subprocess.Popen[str]":
        assert self.node._process is not None
        return self.node._process

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.node.watch()

    def ended(self) -> None:
        """Wait until the process, if there is one now, has ended by itself."""
        if self.node._process is not None:
            self.node._process.wait(60)


def soon(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def said(lines: pytest.LogCaptureFixture) -> Callable[[str], int]:
    """How often words were logged."""
    return lambda words: sum(words in message for message in lines.messages)


@contextmanager
def watched(folder: Path, code: str) -> Iterator[Watched]:
    player = Watched(folder, code)
    try:
        yield player
    finally:
        player.node._shut()


@pytest.fixture
def site(tmp_path: Path, said: Callable[[str], int]) -> Iterator[Watched]:
    """A connected one."""
    with watched(tmp_path, CONNECTED) as site:
        soon(lambda: said(f"connected to {SERVER}") == 1)
        yield site


def test_a_site_that_is_answered_nothing_connects_anew_and_says_so(site: Watched, said: Callable[[str], int]) -> None:
    first = site.process
    site.pass_seconds(85)
    assert first.poll() is None
    site.pass_seconds(10)
    assert first.poll() is not None
    assert said(f"no answer from {SERVER} for 90 s; reconnecting") == 1
    soon(lambda: said(f"connected to {SERVER}") == 1)
    assert site.process is not first


def test_a_link_that_beats_but_asks_for_nothing_is_slow_at_first_and_then_deaf(
    site: Watched, said: Callable[[str], int]
) -> None:
    first = site.process
    for seconds, is_deaf in ((890, False), (20, True)):
        for _ in range(seconds):
            site.node._count(_supernode.HEARTBEAT)
            site.pass_seconds(1)
        assert (first.poll() is not None) is is_deaf
    assert said(f"no request reached {SERVER}") == 1


def test_a_message_in_progress_is_not_cut_off_when_the_link_is_lost(site: Watched, said: Callable[[str], int]) -> None:
    first = site.process
    with site.node.working():
        site.pass_seconds(1000)
        assert said("finishing the message in progress") == 1
        site.node._count(_supernode.HEARTBEAT)
        assert said(f"connection to {SERVER} restored") == 1
        site.pass_seconds(1000)
    site.pass_seconds(85)
    assert first.poll() is None, "what was answered has time to be handed in"
    site.pass_seconds(10)
    assert first.poll() is not None


def test_the_time_a_machine_slept_is_no_silence() -> None:
    silence = AnswerTimer()
    assert [silence.read(now) for now in (0, 1, 2, 10_000, 10_001)] == [0, 1, 2, 7, 8]
    silence.reset()
    assert silence.read(10_002) == 0


def test_two_sites_with_one_key_are_told_so(tmp_path: Path, said: Callable[[str], int]) -> None:
    with watched(tmp_path, HELD) as site:
        for _ in range(20):
            site.ended()
            site.pass_seconds(17)  # it has ended; the longest pause; the next
        assert said("an old one of this site, which expires within a minute, or another site with the same key") == 1
        assert said("another site is connected with this key: stop it, or make separate keys") == 1


@pytest.mark.parametrize("code", ["import time; time.sleep(1000)", "import sys; sys.exit('ConnectError')"])
def test_a_server_that_is_not_there_is_said_to_be_so_once(
    code: str, tmp_path: Path, lines: pytest.LogCaptureFixture, said: Callable[[str], int]
) -> None:
    """A site that goes on running after its run has ended does not fill its log."""
    with watched(tmp_path, code) as site:
        for _ in range(6):
            if "exit" in code:
                site.ended()
            site.pass_seconds(1000)
    assert said(f"{SERVER}: cannot connect; retrying every 20 s") == 1
    assert [record.levelname for record in lines.records] == ["WARNING"]


def test_a_worker_outlives_a_supernode_that_forgot_its_message() -> None:
    def answering(answer: Callable[[], object]) -> bool:
        return _send_heartbeat(SimpleNamespace(SendTaskHeartbeat=lambda _: answer()))  # type: ignore[arg-type]

    def fails(error: Exception) -> object:
        raise error

    request = httpx.Request("POST", "http://127.0.0.1")
    unknown = httpx.HTTPStatusError("401", request=request, response=httpx.Response(401))
    assert answering(lambda: SimpleNamespace(success=False)), "Flower would send this process a SIGINT"
    assert answering(lambda: fails(unknown))
    assert not answering(lambda: fails(httpx.ConnectError("nobody there")))


def test_a_message_that_cannot_be_read_does_not_end_the_site(monkeypatch: Any, lines: Any) -> None:
    def broken(_client: object) -> None:
        raise ValueError("a stranger's bytes")

    monkeypatch.setattr(_flwr, "HeartbeatSender", lambda _fn: SimpleNamespace(start=str, stop=str))
    monkeypatch.setattr(_flwr, "pull_task_input", broken)
    executor = Executor(f"127.0.0.1:{free_port()}", b"s" * 32, lambda message, _context: message)
    executor._client = SimpleNamespace(AcquireTask=lambda _request: SimpleNamespace(token="t"))  # type: ignore[assignment]
    assert executor.step()
    assert "cannot receive or answer a message" in lines.text


def test_a_handshake_that_nobody_answers_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts, and says nothing
        url = f"https://127.0.0.1:{deaf.getsockname()[1]}"
        client = main.FleetClient(url, verify=False, timeout=0.2)
        tries = []

        def call() -> None:
            tries.append(1)
            client.PullMessages(PullMessagesRequest())

        for invoker in (make_simple_http_retry_invoker(), main.patient_invoker()):
            invoker.max_tries, invoker.wait_function = 3, lambda seconds: None
            with pytest.raises(httpx.ConnectTimeout):
                invoker.invoke(call)
        client.close()
    assert len(tries) == 1 + 3, "Flower gives up at once"


@contextmanager
def serving(status: int, body: bytes, **headers: str) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_message_that_is_too_large_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "MOST_BYTES", 5000)
    with serving(200, b"\x0a\x00" * 1000) as url, main.FleetClient(url) as client:
        client._taken = 2000  # its other parts
        client.PullObject(PullObjectRequest())
        with pytest.raises(main.TooMuchError, match="too large"):
            client.PullObject(PullObjectRequest())


def test_a_packed_answer_is_not_unpacked_and_nobody_is_followed_elsewhere() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    with (
        serving(200, bomb, content_encoding="gzip") as url,
        main.FleetClient(url) as client,
        pytest.raises(main.TooMuchError, match="compressed"),
    ):
        client.PullObject(PullObjectRequest())
    with (
        serving(200, b"") as inner,
        serving(307, b"", location=inner) as url,
        main.FleetClient(url) as client,
        pytest.raises(httpx.HTTPStatusError, match="307"),
    ):
        client.PullObject(PullObjectRequest())


IMPATIENT = """
import sys
from functools import partial
import fedotp.flower.site._app as client
program = ["-P", "-c", '''
import flwr.common.constant
flwr.common.constant.HEARTBEAT_DEFAULT_INTERVAL = 10  # the server forgets a dead connection after twice that
from fedotp.flower.link._supernode_main import main
main()
''']
client.SuperNode = partial(client.SuperNode, silence=6, program=program)
from fedotp.cli import main
main()
"""


@pytest.mark.processes
def test_a_site_is_back_after_its_link_was_dead_without_being_cut(inputs: Path, tmp_path: Path) -> None:
    """And what it keeps in a folder that was open to everybody is its own."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    port = make_study(tmp_path, make_deployable(inputs), ["north", "never"])
    with stalling_proxy(port) as link, processes(tmp_path) as started:
        started.start_server(port)
        where = ["--server", f"localhost:{link.port}", "--keys", "keys/sites/north", "--state", "state"]
        started.start("north", "client", "--part", 0, *where, code=IMPATIENT)
        started.until(lambda: "connected to" in started.log("north"))
        link.flows.clear()
        started.until(lambda: "for 6 s; reconnecting" in started.log("north"))
        before = started.log("north").count("connected to")
        link.flows.set()
        started.until(lambda: started.log("north").count("connected to") > before)
        kept = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
        assert {path.name for path in kept} >= {"state", "flower", "lock"}
        assert not [path for path in kept if path.stat().st_mode & 0o077]
        assert "state was accessible to other users of this machine" in started.log("north")
        started.stop_waiting("server", signal.SIGINT)
