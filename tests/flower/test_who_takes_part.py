"""Who takes part: sites that come late, go, or share a name."""

from pathlib import Path

import pytest
from flwr.app import Message
from near_sites import NearGrid, answered, make_deployable, named, parts

from fedotp.flower.server import ServerSettings
from fedotp.flower.server._registration import Registry
from fedotp.flower.server._serve import resume_serving, serve
from fedotp.runs.directory import RunDirectory

QUICK = ServerSettings(round_timeout=0.5, start_timeout=20)


def coming_late(grid: NearGrid, node: int) -> None:
    """Let a site come when the first one trains."""
    grid.offline.add(node)

    def come(message: Message, reply: Message) -> Message:
        if message.metadata.message_type == "train":
            grid.offline.discard(node)
        return reply

    grid.meddle[min(grid.nodes)] = come


@pytest.mark.parametrize("method", ["fedotp", "fedmgp", "promptfl-fedamp"])
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
    took_part = answered(run)
    assert took_part[0] == [0, 1]
    assert took_part[-1] == (
        [0, 1] if method == "promptfl-fedamp" else [0, 1, 2]
    )  # FedAMP's server has no place for it
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
    assert answered(run) == [[0], [0]]
    hellos = [message for message in grid.sent if message.metadata.message_type == "query"]
    assert len(hellos) <= 6, "they are not asked in turn for ever"


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
