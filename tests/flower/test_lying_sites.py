"""Sites that lie: it is refused in one line, and counted as theirs."""

import json
import math
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from near_sites import NearGrid, assert_same_server, changed, make_deployable, parts, silent

from fedotp.errors import FedotpError
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._registration import Member, Registration, Registry, State
from fedotp.flower.server._updates import checked_update, reported_scores
from fedotp.runs.directory import RunDirectory


def saying(record: str, **values: Any) -> Callable[[RecordDict], Any]:
    """Set values in a record of an answer."""
    return lambda content: [content[record].__setitem__(key, value) for key, value in values.items()]


def unreadable(start: bytes = b"\x93NUMPY\x01\x00\x10\x00{'descr': ((((\n") -> ArrayRecord:
    return ArrayRecord({"shared": Array(dtype="float32", shape=(1,), stype="numpy.ndarray", data=start)})


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


@pytest.fixture(scope="module")
def honest(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Message, Message]]:
    """A site's honest answers in a federation of two, by the kind of message."""
    folder = tmp_path_factory.mktemp("honest")
    grid = NearGrid(parts(folder, 2, share="predictions"))
    config = make_deployable(inputs, federation={"rounds": 1})
    grid.serve(config, folder / "run", classes=("blue", "green", "red"))
    return {kind: grid.exchanged(kind)[-1] for kind in ("query", "train", "evaluate")}


@pytest.mark.parametrize("lie", HELLOS)
def test_a_site_that_lies_at_hello_is_refused(lie: str, honest: Any, lines: Any) -> None:
    _, reply = deepcopy(honest["query"])
    saying("config", **HELLOS[lie])(reply.content)
    member = Member("site-1", node=101, state=State.ASKED)
    registry = Registry([member], {101: "site-1"})
    agreement = SimpleNamespace(classes=("blue", "green", "red"))
    Registration(None, registry, agreement, ServerSettings())._take(member, reply)  # type: ignore[arg-type]
    assert member.state is State.REFUSED
    (refusal,) = [record.getMessage() for record in lines.records if "was refused: " in record.getMessage()]
    assert refusal.isprintable()
    assert len(refusal) < 500


@pytest.mark.parametrize("classes", [[], ["red"], ["red", "red", "blue"], ["red\nINFO", "blue"]])
def test_sites_that_name_no_classes_end_the_start_and_not_the_server(
    classes: list[str], inputs: Path, tmp_path: Path
) -> None:
    grid = NearGrid(parts(tmp_path, 1), meddle={100: changed("query", saying("config", classes=classes))})
    with pytest.raises(FedotpError, match=r"every site was refused|fewer than two classes"):
        grid.serve(make_deployable(inputs), tmp_path / "run")


def put(content: RecordDict, value: np.ndarray, name: str = "shared") -> None:
    content["arrays"] = ArrayRecord({name: Array(value)})


def shared(content: RecordDict) -> np.ndarray:
    return np.array(content.array_records["arrays"]["shared"].numpy())


def images(n: float) -> Callable[[RecordDict], Any]:
    return lambda content: content.__setitem__("metrics", MetricRecord({"num-examples": n}))


UPDATES: dict[str, tuple[Callable[[RecordDict], Any], str]] = {
    "not a number": (lambda c: put(c, shared(c) * math.nan), "non-finite"),
    "infinite": (lambda c: put(c, np.full_like(shared(c), math.inf)), "non-finite"),
    "another shape": (lambda c: put(c, shared(c)[:, :1]), "shape"),
    "another type": (lambda c: put(c, shared(c).astype(np.float64)), "float64"),
    "another name": (lambda c: put(c, shared(c), "private"), "expected arrays shared, got private"),
    "nothing": (lambda c: c.array_records.pop("arrays"), "contains no update"),
    "no number of images": (lambda c: c.metric_records.pop("metrics"), "contains no metrics"),
    "too many images": (images(10**9), "it reported"),
    "negative images": (images(-3), "it reported"),
    "half an image": (images(0.5), "it reported"),
    "an endless loss": (saying("metrics", loss=math.inf), "got inf"),
    "a huge loss": (saying("metrics", loss=1e300), "got 1e"),
    "a loss of several": (saying("metrics", loss=[1.0, 2.0]), "loss must be"),
    "images without number": (saying("metrics", images=1e300), "images must be"),
    "bytes that are no array": (lambda c: c.__setitem__("arrays", unreadable()), "cannot parse"),
    "an archive": (lambda c: c.__setitem__("arrays", unreadable(b"PK\x03\x04")), "cannot parse"),
    "ten times the bytes": (lambda c: c.__setitem__("arrays", unreadable(bytes(10**6))), "bytes, got 1000000"),
}


@pytest.mark.parametrize("lie", UPDATES)
def test_an_update_that_lies_is_refused(lie: str, honest: Any) -> None:
    message, reply = deepcopy(honest["train"])
    expected = {"shared": torch.from_numpy(shared(message.content))}
    member = Member("site-1", train_images=11, agreed=11)
    assert checked_update(reply, expected, member, 11) is not None
    change, why = UPDATES[lie]
    change(reply.content)
    with pytest.raises(FedotpError, match=why):
        checked_update(reply, expected, member, 11)


@pytest.mark.parametrize("lie", ["not a number", "no number of images", "an endless loss"])
def test_a_run_averages_the_others_updates_and_keeps_the_fault(lie: str, inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs, federation={"rounds": 1})
    lying = NearGrid(parts(tmp_path / "lying", 3), meddle={101: changed("train", UPDATES[lie][0])})
    run = lying.serve(config, tmp_path / "run")
    expected = NearGrid(parts(tmp_path / "silent", 3), meddle={101: silent()}).serve(config, tmp_path / "expected")
    (record,) = run.metrics("round")
    assert record["answered"] == [0, 2]
    assert UPDATES[lie][1] in record["faults"]["site-1"]
    assert run.summary["faults"] == {"site-1": 1}
    assert_same_server(run, expected)
    _require_strict_json(run)


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
def test_scores_that_lie_do_not_count(lie: str, honest: Any, lines: Any) -> None:
    _, reply = deepcopy(honest["evaluate"])
    n = int(reply.content.metric_records["metrics"]["num-examples"])
    members = [Member("site-0"), Member("site-1", test_images=n)]
    assert reported_scores({1: reply}, members, 3)[0] is not None
    SCORES[lie](reply.content)
    assert reported_scores({1: reply}, members, 3) == (None, None)
    assert "site site-1: ignoring invalid scores" in lines.text


def _require_strict_json(run: RunDirectory) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    for line in (run.path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    json.loads((run.path / "summary.json").read_text(), parse_constant=refuse)


def test_a_site_cannot_answer_in_the_name_of_another(inputs: Path, tmp_path: Path) -> None:
    def forge(message: Message, reply: Message) -> Message:
        reply.metadata.__dict__["_src_node_id"] = 100
        return reply

    config = make_deployable(inputs, method={"name": "promptfl-fedamp"})
    forged = NearGrid(parts(tmp_path / "forged", 2), meddle={101: forge})
    honest = NearGrid(parts(tmp_path / "honest", 2))
    runs = [grid.serve(config, tmp_path / name) for name, grid in (("a", forged), ("b", honest))]
    assert_same_server(runs[0], runs[1])
