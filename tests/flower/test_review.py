"""Peers that lie, and what must not happen because of them; stopping and going on where it is not easy."""

import json
import math
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from near_sites import NearGrid, make_deployable, named, parts
from real_processes import processes

from fedotp.cli.show import print_run
from fedotp.errors import FedotpError
from fedotp.federation import load_server
from fedotp.flower.link import _executor
from fedotp.flower.link._executor import Executor
from fedotp.flower.link._post import Post
from fedotp.flower.link._superlink import free_port
from fedotp.flower.server._registry import Registry
from fedotp.flower.server._serve import resume_serving, serve
from fedotp.flower.server._server import Deployed
from fedotp.flower.server._settings import ServerSettings
from fedotp.flower.server._welcome import Welcome
from fedotp.flower.site._client import alone_in
from fedotp.flower.site._private import PrivateFile
from fedotp.flower.site._site import Site
from fedotp.runs import Observer, RunDirectory

QUICK = ServerSettings(round_timeout=0.5, start_timeout=20)


def answering(kind: str, change: Callable[[RecordDict], Any]) -> Callable[[Message, Message], Message]:
    """Change what a site answers to messages of one kind."""

    def meddle(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == kind:
            change(reply.content)
        return reply

    return meddle


def saying(record: str, **values: Any) -> Callable[[RecordDict], Any]:
    """Set values in a record of an answer."""
    return lambda content: [content[record].__setitem__(key, value) for key, value in values.items()]


def unreadable(start: bytes = b"\x93NUMPY\x01\x00\x10\x00{'descr': ((((\n") -> ArrayRecord:
    return ArrayRecord({"shared": Array(dtype="float32", shape=(1,), stype="numpy.ndarray", data=start)})


# Sites that lie ----------------------------------------------------------------------------------------------

HELLOS: dict[str, dict[str, Any]] = {
    "fewer than no images": {"train-images": -3},
    "endless images": {"train-images": math.inf},
    "no number": {"test-images": math.nan},
    "more images than anyone has": {"train-images": 10**15},
    "images in words": {"train-images": "many"},
    "a domain of two lines": {"domain": "day\n12:00:00 INFO everything is well"},
    "an endless domain": {"domain": "d" * 10_000},
    "a list for a domain": {"domain": ["day"]},
    "no name": {"name": ""},
    "another name": {"name": "site-0\x1b[2J\nrefused"},
}


@pytest.mark.parametrize("lie", HELLOS)
def test_a_site_that_lies_at_hello_is_refused(lie: str, inputs: Path, tmp_path: Path, lines: Any) -> None:
    grid = NearGrid(parts(tmp_path, 2), meddle={101: answering("query", saying("config", **HELLOS[lie]))})
    config = make_deployable(inputs, federation={"rounds": 1})
    run = serve(grid, config, QUICK, tmp_path / "run", classes=("blue", "green", "red"), **named(grid))
    assert [(record["sampled"], record["answered"]) for record in run.metrics("round")] == [([0], [0])]
    refusals = [record.getMessage() for record in lines.records if "is refused" in record.getMessage()]
    assert refusals
    assert all(line.isprintable() and len(line) < 500 for line in refusals)


@pytest.mark.parametrize("classes", [[], ["red"], ["red", "red", "blue"], ["red\nINFO", "blue"]])
def test_sites_that_name_no_classes_end_the_start_and_not_the_server(
    classes: list[str], inputs: Path, tmp_path: Path
) -> None:
    grid = NearGrid(parts(tmp_path, 1), meddle={100: answering("query", saying("config", classes=classes))})
    with pytest.raises(FedotpError, match=r"every site was refused|fewer than two classes"):
        serve(grid, make_deployable(inputs), QUICK, tmp_path / "run", **named(grid))


def test_a_refusal_cannot_write_lines_of_its_own_into_the_log(inputs: Path, tmp_path: Path, lines: Any) -> None:
    def refuse(content: RecordDict) -> None:
        content["config"] = ConfigRecord({"refused": "no\n12:00:00 INFO\x1b[2J all is well" + "x" * 10**6})

    grid = NearGrid(parts(tmp_path, 2), meddle={101: answering("train", refuse)})
    run = serve(grid, make_deployable(inputs), QUICK, tmp_path / "run", **named(grid))
    assert all(record.getMessage().isprintable() for record in lines.records)
    (fault,) = next(run.metrics("round"))["faults"].values()
    assert fault.startswith("it refuses: no 12:00:00 INFO")
    assert len(fault) < 500


UPDATES: dict[str, Callable[[RecordDict], Any]] = {
    "an endless loss": saying("metrics", loss=math.inf),
    "a huge loss": saying("metrics", loss=1e300),
    "a loss of several": saying("metrics", loss=[1.0, 2.0]),
    "images without number": saying("metrics", images=1e300),
    "bytes that are no array": lambda c: c.__setitem__("arrays", unreadable()),
    "an archive": lambda c: c.__setitem__("arrays", unreadable(b"PK\x03\x04")),
    "ten times the bytes": lambda c: c.__setitem__("arrays", unreadable(bytes(10**6))),
}


@pytest.mark.parametrize("lie", UPDATES)
def test_an_update_that_lies_is_refused(lie: str, inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 3), meddle={101: answering("train", UPDATES[lie])})
    run = serve(grid, make_deployable(inputs, federation={"rounds": 1}), QUICK, tmp_path / "run", **named(grid))
    (record,) = run.metrics("round")
    assert record["answered"] == [0, 2]
    assert list(record["faults"]) == ["site-1"]
    _require_strict_json(run)


@pytest.mark.parametrize("privacy", ["none", "server"])
def test_what_else_is_in_an_answer_is_not_looked_at(privacy: Any, inputs: Path, tmp_path: Path) -> None:
    def more(content: RecordDict) -> None:
        content["more"] = unreadable()
        content["numbers"] = MetricRecord({"num-examples": 10**6})

    settings = ServerSettings(round_timeout=0.5, privacy=privacy, noise=0.0, clip=1e6)
    grid = NearGrid(parts(tmp_path, 2), meddle={101: answering("train", more)})
    run = serve(grid, make_deployable(inputs), settings, tmp_path / "run", **named(grid))
    assert [record["answered"] for record in run.metrics("round")] == [[0, 1], [0, 1]]


def _columns(content: RecordDict, **columns: Any) -> None:
    record = content.array_records["predictions"]
    content["predictions"] = ArrayRecord({**record, **{name: Array(value) for name, value in columns.items()}})


def _column(content: RecordDict, name: str) -> np.ndarray:
    return np.array(content.array_records["predictions"][name].numpy())


SCORES: dict[str, Callable[[RecordDict], Any]] = {
    "better than right": saying("metrics", accuracy=7.0),
    "worse than wrong": saying("metrics", accuracy=-1e308),
    "no number": saying("metrics", accuracy=math.nan),
    "an endless loss": saying("metrics", loss=math.inf),
    "more images than it has": saying("metrics", **{"num-examples": 10**9}),
    "fewer than no images": saying("metrics", **{"num-examples": -2}),
    "a class that is not": lambda c: _columns(c, predicted=_column(c, "predicted") + 3),
    "a loss that is no number": lambda c: _columns(c, loss=_column(c, "loss") * math.nan),
    "too many predictions": lambda c: _columns(c, label=np.zeros(10**6, np.int64)),
    "rows that are nowhere": lambda c: _columns(c, row=_column(c, "row") - 10**12),
    "predictions in words": lambda c: _columns(c, label=np.array(["red"] * len(_column(c, "row")))),
    "predictions that cannot be read": lambda c: c.__setitem__("predictions", unreadable()),
}


@pytest.mark.parametrize("lie", SCORES)
def test_scores_that_lie_do_not_count(lie: str, inputs: Path, tmp_path: Path, lines: Any) -> None:
    grid = NearGrid(parts(tmp_path, 2, share="predictions"), meddle={101: answering("evaluate", SCORES[lie])})
    run = serve(grid, make_deployable(inputs, federation={"rounds": 1}), QUICK, tmp_path / "run", **named(grid))
    assert [client["name"] for client in run.summary["clients"]] == ["site-0"]
    assert "site site-1: what it tells of its tests does not count" in lines.text
    _require_strict_json(run)


def test_predictions_with_scores_that_lie_do_not_take_the_place_of_others(inputs: Path, tmp_path: Path) -> None:
    sites = parts(tmp_path, 2)
    sites[101]["share"] = "predictions"
    grid = NearGrid(sites, meddle={101: answering("evaluate", SCORES["better than right"])})
    run = serve(grid, make_deployable(inputs, federation={"rounds": 1}), QUICK, tmp_path / "run", **named(grid))
    assert [client["name"] for client in run.summary["clients"]] == ["site-0"]


def _require_strict_json(run: RunDirectory) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    for line in (run.path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    json.loads((run.path / "summary.json").read_text(), parse_constant=refuse)


def test_an_answer_that_flower_cannot_read_is_that_sites_fault(inputs: Path, tmp_path: Path) -> None:
    class Fragile(NearGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            replies = super().pull_messages(message_ids)
            for reply in replies:
                if reply.metadata.src_node_id == 101 and reply.metadata.message_type == "train":
                    raise ValueError("Unexpected set of `children`.")
            return replies

    grid = Fragile(parts(tmp_path, 3))
    run = serve(grid, make_deployable(inputs, federation={"rounds": 1}), QUICK, tmp_path / "run", **named(grid))
    (record,) = run.metrics("round")
    assert record["answered"] == [0, 2]
    assert "cannot be read" in record["faults"]["site-1"]


def test_a_site_cannot_answer_in_the_name_of_another(inputs: Path, tmp_path: Path) -> None:
    def forge(message: Message, reply: Message) -> Message:
        reply.metadata.__dict__["_src_node_id"] = 100
        return reply

    config = make_deployable(inputs, method={"name": "promptfl-fedamp"})
    forged = NearGrid(parts(tmp_path / "forged", 2), meddle={101: forge})
    honest = NearGrid(parts(tmp_path / "honest", 2))
    runs = [serve(grid, config, QUICK, tmp_path / name, **named(grid)) for name, grid in (("a", forged), ("b", honest))]
    torch.testing.assert_close(load_server(runs[0].checkpoint), load_server(runs[1].checkpoint), atol=0, rtol=0)


def test_an_update_far_away_is_refused_by_a_method_that_publishes_too(inputs: Path, tmp_path: Path) -> None:
    def far(content: RecordDict) -> None:
        values = content.array_records["arrays"]["prompt"].numpy() + np.float32(1e6)
        content["arrays"] = ArrayRecord({"prompt": Array(values)})

    grid = NearGrid(parts(tmp_path, 3), meddle={101: answering("train", far)})
    config = make_deployable(inputs, method={"name": "promptfl-fedamp"})
    run = serve(grid, config, QUICK, tmp_path / "run", **named(grid))
    assert [record["answered"] for record in run.metrics("round")] == [[0, 2], [0, 2]]


# Sites that come, go and share a name --------------------------------------------------------------------------


def coming_late(grid: NearGrid, node: int) -> None:
    """Let a site come when the first one trains."""
    grid.offline.add(node)

    def come(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train":
            grid.offline.discard(node)
        return reply

    grid.meddle[min(grid.nodes)] = come


@pytest.mark.parametrize("method", ["fedotp", "promptfl-fedamp"])
def test_a_site_that_nobody_named_may_come_late_and_the_run_be_resumed(
    method: str, inputs: Path, tmp_path: Path
) -> None:
    grid = NearGrid(parts(tmp_path, 3))
    coming_late(grid, 102)
    config = make_deployable(inputs, method={"name": method}, federation={"rounds": 4})

    def cut(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train" and message.metadata.group_id == "4":
            raise KeyboardInterrupt
        return reply

    grid.meddle[101] = cut
    with pytest.raises(KeyboardInterrupt):
        serve(grid, config, QUICK, tmp_path / "run")
    again = NearGrid(parts(tmp_path, 3))
    run = resume_serving(again, tmp_path / "run", QUICK)  # type: ignore[arg-type]
    assert RunDirectory(run.path).manifest["clients"] == ["site-0", "site-1", "site-2"]
    assert len(RunDirectory(run.path).manifest["domains"]) == 3
    answered = [record["answered"] for record in run.metrics("round")]
    assert answered[0] == [0, 1]
    assert answered[-1] == ([0, 1, 2] if method == "fedotp" else [0, 1])  # FedAMP's server has no place for it
    assert [client["name"] for client in run.summary["clients"]] == ["site-0", "site-1", "site-2"]


def test_a_newcomer_who_turns_out_to_be_known_moves_no_number() -> None:
    registry = Registry()
    for node, name in ((1, "a"), (2, "b")):
        registry.introduce(registry.meet(node, "first"), name)
    back, new = registry.meet(3, "later"), registry.meet(4, "later")
    registry.introduce(new, "c")
    number = registry.number(new)
    registry.introduce(back, "a")
    assert registry.number(new) == number == 2
    assert registry.names == ("a", "b", "c")
    assert registry.of_node(3) is registry.members[0]


def test_of_two_sites_with_one_name_the_last_one_is_it(inputs: Path, tmp_path: Path) -> None:
    sites = parts(tmp_path, 2)
    sites[101]["name"] = "site-0"
    grid = NearGrid(sites)
    run = serve(grid, make_deployable(inputs), QUICK, tmp_path / "run", classes=("blue", "green", "red"))
    assert [record["answered"] for record in run.metrics("round")] == [[0], [0]]
    hellos = [message for message in grid.sent if message.metadata.message_type == "query"]
    assert len(hellos) <= 6, "they are not asked in turn for ever"


def test_a_site_that_is_gone_is_not_asked_for_its_answer_for_ever(inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 1), meddle={100: lambda message, reply: None})
    welcome = Welcome(Post(grid), Registry(), SimpleNamespace(classes=()))  # type: ignore[arg-type]
    welcome._waiting = {"lost": 77}
    grid.offline.add(100)
    welcome.step()
    assert not welcome._waiting


def test_a_dead_site_that_is_drawn_does_not_stop_the_run(inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 3))

    def die(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train":
            grid.offline |= set(grid.nodes) - {message.metadata.dst_node_id}
        return reply

    grid.meddle = dict.fromkeys(grid.nodes, die)
    config = make_deployable(inputs, federation={"rounds": 6, "participation": 0.3})
    run = serve(grid, config, QUICK, tmp_path / "run", **named(grid))
    assert [len(record["answered"]) for record in run.metrics("round")] == [1] * 6


def test_privacy_is_accounted_for_when_a_site_is_missing(inputs: Path, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    settings = ServerSettings(round_timeout=0.5, privacy="server", noise=2.0, clip=0.1, delta=1e-5)
    grid = NearGrid(
        parts(tmp_path, 3),
        meddle={101: lambda message, reply: None if message.metadata.group_id == "1" else reply},
    )
    run = serve(grid, make_deployable(inputs, federation={"rounds": 3}), settings, tmp_path / "run", **named(grid))
    assert run.summary["privacy"]["releases"] == 3


@pytest.mark.parametrize("setting", [{"dropout": 0.5}, {"holdout_clients": 1}])
def test_what_only_a_simulation_can_do_is_refused(setting: dict[str, float], inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 2))
    with pytest.raises(FedotpError, match="is for simulations"):
        serve(grid, make_deployable(inputs, federation=setting), QUICK, tmp_path / "run", **named(grid))


def test_a_round_with_too_few_updates_says_so(inputs: Path, tmp_path: Path, lines: Any) -> None:
    grid = NearGrid(parts(tmp_path, 2))
    config = make_deployable(inputs, federation={"min_clients": 3})
    serve(grid, config, QUICK, tmp_path / "run", **named(grid))
    assert "2 updates, fewer than 3: nothing is averaged" in lines.text


# The site ------------------------------------------------------------------------------------------------------


def test_two_rounds_that_were_not_accepted_do_not_lose_the_one_that_was(inputs: Path, tmp_path: Path) -> None:
    def late(message: Message, reply: Message) -> Message | None:
        return None if message.metadata.message_type == "train" and message.metadata.group_id in "234" else reply

    kept: list[list[int]] = []

    def look(message: Message, reply: Message) -> Message | None:
        if message.metadata.message_type == "train":
            (path,) = (tmp_path / "site-1").glob("*/private.safetensors")
            kept.append(PrivateFile(path).rounds)
        return late(message, reply)

    grid = NearGrid(parts(tmp_path, 2), meddle={101: look})
    run = serve(grid, make_deployable(inputs, federation={"rounds": 5}), QUICK, tmp_path / "run", **named(grid))
    assert [record["answered"] for record in run.metrics("round")] == [[0, 1], [0], [0], [0], [0, 1]]
    assert kept == [[1], [1, 2], [1, 3], [1, 4], [1, 5]]


def test_the_private_prompt_is_for_its_owner_only(inputs: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        grid = NearGrid(parts(tmp_path, 1))
        serve(grid, make_deployable(inputs), QUICK, tmp_path / "run", **named(grid))
        with alone_in(tmp_path / "another"):
            pass
    finally:
        os.umask(before)
    (path,) = (tmp_path / "site-0").glob("*/private.safetensors")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "another").stat().st_mode) == 0o700


def test_two_processes_cannot_be_the_same_site(tmp_path: Path) -> None:
    with (
        alone_in(tmp_path / "state"),
        pytest.raises(FedotpError, match="held by another `fedotp client`"),
        alone_in(tmp_path / "state"),
    ):
        pass
    with alone_in(tmp_path / "state"):
        pass


def test_a_state_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedotpError, match="cannot write"), alone_in(tmp_path / "file"):
        pass


def test_a_full_disk_is_a_fault_and_no_path_is_told(inputs: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: object, **__: object) -> None:
        raise FedotpError("cannot write /scans/Jane Doe/private: No space left on device")

    monkeypatch.setattr("fedotp.flower.site._private.write_atomically", full)
    monkeypatch.setattr(Site, "keep_classifier", full)
    grid = NearGrid(parts(tmp_path, 2))
    run = serve(grid, make_deployable(inputs), QUICK, tmp_path / "run", **named(grid))
    faults = next(run.metrics("round"))["faults"]
    assert set(faults) == {"site-0", "site-1"}
    assert "its own log says why" in faults["site-0"]
    assert len(run.summary["clients"]) == 2, "the last evaluation is not lost with the classifier"
    assert not any("Jane" in str(reply.content) for reply in grid.answered)


@pytest.mark.parametrize("number", [-1, 10**12])
def test_a_server_cannot_make_a_site_take_all_memory_by_its_number(number: int, inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 1))
    serve(grid, make_deployable(inputs), QUICK, tmp_path / "run", **named(grid))
    order = next(message for message in grid.sent if message.metadata.message_type == "train")
    order.content["config"]["number"] = number  # type: ignore[index]
    again = Message(order.content, dst_node_id=100, message_type="train")
    (reply,) = grid.pull_messages(grid.push_messages([again]))
    assert f"is number {number}" in str(reply.content.config_records["config"]["refused"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"config": {"prompt": {"n_ctx": 10**9}}}, "prompt.n_ctx = 1000000000: must be from 1 to 1000"),
        ({"config": {"data": {"views": 9000}}}, "data.views = 9000 is more than"),
        ({"config": {"method": {"n_private": 10**9}}}, "there must be from 1 to 256 prompts"),
        ({"config": {"federation": {"local_epochs": 10**6}}}, "local_epochs = 1000000 is more than"),
        ({"config": {"federation": {"colour": 1}}}, "colour"),
        ({"config": 5}, "cannot be read"),
        ({"classes": 5}, "cannot be read"),
        ({"run": None}, "not a run's name"),
    ],
)
def test_a_site_does_not_agree_to_everything(change: dict[str, Any], reason: str, inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 1))
    serve(grid, make_deployable(inputs), QUICK, tmp_path / "run", **named(grid))
    order = next(message for message in grid.sent if message.metadata.message_type == "train")
    config = order.content.config_records["config"]
    config["agreement"] = json.dumps(_merged(json.loads(str(config["agreement"])), change))
    again = Message(order.content, dst_node_id=100, message_type="train")
    (reply,) = grid.pull_messages(grid.push_messages([again]))
    assert reason in str(reply.content.config_records["config"]["refused"])


def _merged(table: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    deeper = {key: _merged(table[key], value) for key, value in change.items() if isinstance(value, dict)}
    return {**table, **change, **deeper}


def test_a_message_that_cannot_be_read_does_not_end_the_site(monkeypatch: Any, lines: Any) -> None:
    def broken(_client: object) -> None:
        raise ValueError("a stranger's bytes")

    monkeypatch.setattr(_executor, "HeartbeatSender", lambda _fn: SimpleNamespace(start=str, stop=str))
    monkeypatch.setattr(_executor, "pull_task_input", broken)
    executor = Executor(f"127.0.0.1:{free_port()}", b"s" * 32, lambda message, _context: message)
    executor._client = SimpleNamespace(AcquireTask=lambda _request: SimpleNamespace(token="t"))  # type: ignore[assignment]
    assert executor.step()
    assert "could not be taken" in lines.text


# The server ----------------------------------------------------------------------------------------------------


def test_ctrl_c_while_nobody_is_there_does_not_wait(inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 2))

    class Impatient(Observer):
        def on_round(self, report: object) -> None:
            grid.offline |= set(grid.nodes)
            stop_waiting[0]()

    stop_waiting: list[Callable[[], None]] = []
    made = Deployed.__init__

    def remember(self: Deployed, *values: Any, **options: Any) -> None:
        made(self, *values, **options)
        stop_waiting.append(self.stop_waiting)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Deployed, "__init__", remember)
        with pytest.raises(KeyboardInterrupt):
            serve(grid, make_deployable(inputs), QUICK, tmp_path / "run", observer=Impatient(), **named(grid))
    again = NearGrid(parts(tmp_path, 2))
    run = resume_serving(again, tmp_path / "run", QUICK, **named(again))  # type: ignore[arg-type]
    assert [record["round"] for record in run.metrics("round")] == [1, 2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_waits_for_sites_can_be_stopped(number: signal.Signals, tmp_path: Path) -> None:
    with processes(tmp_path) as started:
        options = ["--insecure", "--host", "127.0.0.1", "--port", free_port(), "--out", "run"]
        started.start("server", "server", "demo", *options)
        started.until(lambda: "listening at" in started.log("server"))
        started.running["server"].send_signal(number)
        assert started.wait("server") == 130
        assert "stopped before the first round: no run was made" in started.log("server")
        assert "Traceback" not in started.log("server")


def test_flower_is_told_about_telemetry_before_it_is_imported() -> None:
    code = (
        "import fedotp.flower.site._client, fedotp.flower.link._supernode, fedotp.flower.server._run_server; "
        "from flwr.supercore import telemetry; print(telemetry.FLWR_TELEMETRY_ENABLED)"
    )
    environment = {key: value for key, value in os.environ.items() if "TELEMETRY" not in key}
    for asked, expected in (({}, "0"), ({"FEDOTP_FLOWER_TELEMETRY": "1"}, "1")):
        said = subprocess.run(
            [sys.executable, "-c", code], env={**environment, **asked}, capture_output=True, text=True, check=True
        )
        assert said.stdout.split() == [expected]


def test_a_run_that_stops_early_and_whose_sites_are_gone_at_the_end_can_be_shown(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = NearGrid(parts(tmp_path, 2))

    def go(message: Message, reply: Message) -> Message:
        if (
            message.metadata.message_type == "evaluate"
            and message.content.config_records["config"]["server-round"] == 1
        ):
            grid.offline |= set(grid.nodes)
        return reply

    grid.meddle[100] = go
    config = make_deployable(inputs, federation={"rounds": 5}).override(
        ["evaluation.patience=1", "evaluation.min_delta=1"]
    )
    run = serve(grid, config, QUICK, tmp_path / "run", **named(grid))
    assert run.summary["stopped_early"]
    assert run.summary["final"] == {}
    print_run(run)
    assert "stopped early, after round 1; best was round 0" in capsys.readouterr().out
