"""Sites that fail, lie, come late or come back; servers that are killed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from near_sites import NearGrid, answered, assert_same_server, changed, make_deployable, parts, silent, when

import fedotp
from fedotp.federation import Checkpoint
from fedotp.flower.server import ServerSettings
from fedotp.flower.site._app import _site
from fedotp.flower.site._state import PrivateFile
from fedotp.runs.directory import RunDirectory


def test_a_site_with_nothing_to_train_on_does_not_break_the_average(inputs: Path, tmp_path: Path) -> None:
    def empty(content: RecordDict) -> None:
        content["arrays"] = ArrayRecord()
        content["metrics"] = MetricRecord({"num-examples": 0, "images": 0})

    grid = NearGrid(parts(tmp_path, 3), meddle={102: changed("train", empty)})
    run = grid.serve(make_deployable(inputs), tmp_path / "run")
    assert answered(run) == [[0, 1], [0, 1]]
    assert run.summary["faults"] == {}
    assert all(value.isfinite().all() for value in Checkpoint.read(run.checkpoint).server.values())


def test_an_answer_that_comes_late_does_not_count_in_another_round(inputs: Path, tmp_path: Path) -> None:
    def late(message: Message, reply: Message) -> Message | None:
        ((old, answer), *_) = grid.exchanged("train", 1)[1:]
        if message is old:
            return None
        grid._replies[old.metadata.message_id] = answer  # now that the next one is asked for, the old one arrives too
        return reply

    grid = NearGrid(parts(tmp_path / "late", 3), meddle={101: when("train", late)})
    run = grid.serve(make_deployable(inputs), tmp_path / "run")
    assert answered(run) == [[0, 2], [0, 1, 2]]
    dropped = NearGrid(parts(tmp_path / "dropped", 3), meddle={101: silent(1)})
    assert_same_server(run, dropped.serve(make_deployable(inputs), tmp_path / "expected"))


def test_a_site_that_is_restarted_while_it_works_is_asked_again(
    undisturbed: RunDirectory, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("fedotp.flower.link._transport._LOOK_AROUND", 0.1)

    def die_once(_message: Message, reply: Message) -> Message | None:
        is_again, grid.came[101] = "again" in grid.came.values(), "again"
        return reply if is_again else None

    grid = NearGrid(parts(tmp_path / "a", 3), meddle={101: when("train", die_once)})
    run = grid.serve(undisturbed.config, tmp_path / "run", ServerSettings(round_timeout=20))
    assert answered(run) == [[0, 1, 2], [0, 1, 2]]
    assert_same_server(run, undisturbed)


class PowerCutError(Exception):
    """The server is no more."""


@pytest.fixture(scope="module")
def whole(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of three rounds that was not killed; its sites' states are beside it."""
    config = make_deployable(
        inputs, federation={"rounds": 3}, optimizer={"reset": False, "momentum": 0.9}, server={"name": "momentum"}
    )
    folder = tmp_path_factory.mktemp("whole")
    return NearGrid(parts(folder, 3)).serve(config, folder / "run")


@pytest.mark.parametrize("after", range(10, 25, 5))
def test_a_server_that_is_killed_goes_on_as_if_nothing_had_happened(
    after: int, whole: RunDirectory, tmp_path: Path
) -> None:
    def cut(_message: Message, reply: Message) -> Message:
        if len(grid.answered) == after:
            raise PowerCutError
        return reply

    sites = parts(tmp_path / "cut", 3)
    grid = NearGrid(sites, meddle=dict.fromkeys(sites, cut))
    with pytest.raises(PowerCutError):
        grid.serve(whole.config, tmp_path / "run")
    run = NearGrid(sites).resume(tmp_path / "run")
    assert run.is_complete
    assert_same_server(run, whole)
    for site in ("site-0", "site-1", "site-2"):
        one, other = (_private(folder / site) for folder in (tmp_path / "cut", whole.path.parent))
        assert one.rounds == other.rounds
        torch.testing.assert_close(one.after(3), other.after(3), atol=0, rtol=0)
    assert run.summary["final"] == whole.summary["final"]
    assert run.summary["communication"] == whole.summary["communication"]


def _private(state: Path) -> PrivateFile:
    (path,) = state.glob("*/private.safetensors")
    return PrivateFile(path)


def test_a_site_that_lost_its_file_goes_on_from_the_start(inputs: Path, tmp_path: Path, grid: NearGrid) -> None:
    def lose(_message: Message, reply: Message) -> Message:
        _private(tmp_path / "site-1").path.unlink()
        _site.cache_clear()  # and it was restarted
        return reply

    grid.meddle[101] = when("train", lose, 1)
    run = grid.serve(make_deployable(inputs), tmp_path / "run")
    assert answered(run) == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"federation": {"min_clients": 3}}, "no average: 2 updates, fewer than 3"),
        ({"server": {"rule": "trimmed", "malicious": 1}}, "no average: 2 updates are too few for server.rule = 'tri"),
    ],
)
def test_a_round_with_too_few_updates_changes_nothing_and_says_so(
    sections: dict[str, Any], why: str, inputs: Path, tmp_path: Path, lines: Any
) -> None:
    config = make_deployable(inputs, **sections).override(["federation.rounds=1"])
    run = NearGrid(parts(tmp_path, 3), meddle={101: silent(1)}).serve(config, tmp_path / "run")
    assert why in lines.text
    assert_same_server(run, fedotp.run(config.override(["federation.rounds=0"]), tmp_path / "untrained"))


def test_two_rounds_that_were_not_accepted_do_not_lose_the_one_that_was(inputs: Path, tmp_path: Path) -> None:
    kept: list[list[int]] = []

    def look(message: Message, reply: Message) -> Message | None:
        kept.append(_private(tmp_path / "site-1").rounds)
        return silent(2, 3, 4)(message, reply)

    grid = NearGrid(parts(tmp_path, 2), meddle={101: when("train", look)})
    run = grid.serve(make_deployable(inputs, federation={"rounds": 5}), tmp_path / "run")
    assert answered(run) == [[0, 1], [0], [0], [0], [0, 1]]
    assert kept == [[1], [1, 2], [1, 3], [1, 4], [1, 5]]
