"""Sites, links and servers that go away for a while and come back: no round is lost, and none counted that was none."""

import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from near_sites import NearGrid, answered, assert_same_server, changed, make_deployable, parts, when
from real_processes import processes

from fedotp.errors import FedotpError
from fedotp.flower.keys import make_keys
from fedotp.flower.link import _transport
from fedotp.flower.link._superlink import free_port
from fedotp.flower.server import ServerSettings, _registration, _requests
from fedotp.flower.server._deployed import Deployed
from fedotp.flower.server._serve import run_server
from fedotp.runs.directory import RunDirectory

PATIENT = ServerSettings(round_timeout=20, patience=10)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((_transport, "_PAUSE"), (_transport, "_LOOK_AROUND"), (_requests, "_PAUSE")):
        monkeypatch.setattr(module, name, 0.02)


def unavailable(message: Message, code: int) -> Message:
    """What Flower says in place of a site that it has lost."""
    lost = Message(Error(code, "it was lost"), reply_to=message)
    lost.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
    return lost


LOST = {
    "the site": ErrorCode.NODE_UNAVAILABLE,
    "its answer": ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    "what it was asked": ErrorCode.MESSAGE_UNAVAILABLE,
    "its worker": ErrorCode.CLIENT_APP_CRASHED,
}


@pytest.mark.parametrize("what", LOST)
def test_a_site_that_is_lost_in_the_middle_of_a_round_is_asked_again_when_it_is_back(
    what: str, undisturbed: RunDirectory, tmp_path: Path
) -> None:
    grid = NearGrid(parts(tmp_path / "lost", 3))
    lost: list[str] = []

    def lose(message: Message, reply: Message) -> Message:
        if message.metadata.group_id in lost:
            return reply
        lost.append(message.metadata.group_id)
        return unavailable(message, LOST[what])

    grid.meddle = dict.fromkeys((101, 102), when("train", lose))
    run = grid.serve(undisturbed.config, tmp_path / "run", PATIENT)
    assert lost == ["1", "2"]
    assert answered(run) == [[0, 1, 2], [0, 1, 2]]
    assert run.summary["faults"] == {}
    assert_same_server(run, undisturbed)


def test_a_site_that_is_lost_while_it_is_greeted_is_greeted_again_and_not_refused(inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 3))
    greeted: list[int] = []

    def lose(message: Message, reply: Message) -> Message:
        greeted.append(message.metadata.dst_node_id)
        return unavailable(message, ErrorCode.NODE_UNAVAILABLE) if greeted.count(greeted[-1]) < 3 else reply

    grid.meddle = dict.fromkeys(grid.nodes, when("query", lose))
    run = grid.serve(make_deployable(inputs, federation={"rounds": 1}), tmp_path / "run", PATIENT)
    assert answered(run) == [[0, 1, 2]]


def test_a_site_that_has_just_gone_is_awaited_before_a_round(inputs: Path, tmp_path: Path, grid: NearGrid) -> None:
    looks, real = 0, grid.get_nodes

    def look() -> list[SimpleNamespace]:
        nonlocal looks
        looks += 102 in grid.offline
        if looks > 5:
            grid.offline.clear()
            grid.came[102] = "second"
        return real()

    grid.meddle[100] = changed("train", lambda _: looks or grid.offline.add(102))
    grid.get_nodes = look  # type: ignore[method-assign]
    run = grid.serve(make_deployable(inputs), tmp_path / "run", PATIENT)
    assert answered(run) == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("in_a_round", [False, True])
def test_a_site_that_stays_away_is_awaited_once_and_not_in_every_round(
    in_a_round: bool, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Any, grid: NearGrid
) -> None:
    waits: list[float] = []  # a second each, and none of it passes
    clock = SimpleNamespace(
        sleep=waits.append, monotonic=lambda: time.monotonic() + sum(waits), perf_counter=time.perf_counter
    )
    for module in (_requests, _registration, _transport):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(_requests, "_PAUSE", 1.0)
    grid.meddle[100] = changed("train", lambda _: grid.offline.add(102))
    if in_a_round:
        grid.meddle[102] = when("train", lambda message, _: unavailable(message, LOST["the site"]))
    run = grid.serve(make_deployable(inputs, federation={"rounds": 6}), tmp_path / "run", PATIENT)
    first = [0, 1] if in_a_round else [0, 1, 2]
    assert answered(run) == [first, *[[0, 1]] * 5]
    assert sum(waits) < 1.5 * PATIENT.patience
    words = "site site-2 disconnected during round 1; waiting 10 s" if in_a_round else "site site-2 disconnected"
    assert lines.text.count("site site-2 disconnected") == lines.text.count(words) == 1


def test_a_round_that_nobody_answered_is_not_counted(inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 2))
    deaf = when("train", lambda _, reply: reply if len(grid.exchanged("train")) > 4 else None)
    grid.meddle = dict.fromkeys(grid.nodes, deaf)
    run = grid.serve(make_deployable(inputs), tmp_path / "run", ServerSettings(round_timeout=0.2))
    assert [(record["round"], record["answered"]) for record in run.metrics("round")] == [(1, [0, 1]), (2, [0, 1])]
    assert len(grid.exchanged("train")) == 8, "two rounds' worth of silence, and two rounds"


@pytest.mark.parametrize(
    ("out", "min_sites", "why"), [("run", 9, "--min-sites 9: only 2 sites have keys"), ("file/run", 0, "cannot write")]
)
def test_what_cannot_succeed_is_refused_before_sites_gather(out: str, min_sites: int, why: str, tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", ["localhost"], ["north", "east"])
    (tmp_path / "file").write_text("")
    given: dict[str, Any] = {"source": "demo", "changes": [], "classes": ("a", "b"), "resume": None}
    settings = ServerSettings(min_sites=min_sites)
    with pytest.raises(FedotpError, match=why):
        run_server(settings, "127.0.0.1", free_port(), tmp_path / "keys/server", out=tmp_path / out, **given)


@pytest.mark.processes
def test_the_command_to_go_on_with_listens_where_the_run_did(inputs: Path, tmp_path: Path) -> None:
    """The line that a stopped server prints is pasted as it is, and brings the run to its end."""
    (tmp_path / "study.toml").write_text(make_deployable(inputs, federation={"rounds": 200}).to_toml())
    port = free_port()
    with processes(tmp_path) as started:
        options = ["--insecure", "--port", port, "--out", "run", "--min-sites", 1, "--patience", 7]
        started.start("server", "server", "study.toml", *options)
        where = ["--server", f"127.0.0.1:{port}", "--name", "north", "--state", "state"]
        started.start("north", "client", "--part", 0, "--insecure", *where)
        started.until(lambda: '"round"' in _read(tmp_path / "run/metrics.jsonl"))
        started.running["server"].terminate()
        assert started.wait("server") == 130
    said = f"fedotp server --resume run --insecure --port {port} --min-sites 1 --patience 7"
    assert said in started.log("server").splitlines()[-1]


def _read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


# A server that is stopped ---------------------------------------------------------------------------------------------


def test_ctrl_c_while_nobody_is_there_does_not_wait(inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 2))

    def leave(federation: Deployed, _report: object) -> None:
        grid.offline |= set(grid.nodes)
        federation.on_interrupt()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deployed, "on_round", leave)
        with pytest.raises(KeyboardInterrupt):
            grid.serve(make_deployable(inputs), tmp_path / "run")
    run = NearGrid(parts(tmp_path, 2)).resume(tmp_path / "run")
    assert [record["round"] for record in run.metrics("round")] == [1, 2]


SLOW_TO_EXIT = """
import threading, time
threading.Thread(target=time.sleep, args=(1000,)).start()  # as a request of Flower's that is not answered
from fedotp.cli import main
try:
    main()
finally:
    print("exiting", flush=True)
"""


def test_one_more_ctrl_c_ends_a_process_that_is_slow_to_exit_without_a_traceback(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(make_deployable(inputs).to_toml())
    port = free_port()
    with processes(tmp_path) as started:
        arguments = ["study.toml", "--out", "run", "--insecure", "--min-sites", 1, "--port", port]
        started.start("server", "server", *arguments, code=SLOW_TO_EXIT)
        started.until(lambda: "listening" in started.log("server"))
        started.running["server"].send_signal(signal.SIGINT)
        started.until(lambda: "exiting" in started.log("server"))
        started.running["server"].send_signal(signal.SIGINT)
        assert started.wait("server") == 130
    assert "Traceback" not in started.log("server")
    assert "no run was created" in started.log("server").splitlines()[-2]
