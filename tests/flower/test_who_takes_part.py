"""Who takes part: sites that come late, share a name, or leave, and a replay without the one that left."""

from pathlib import Path

import pytest
from near_sites import NearGrid, answered, changed, cut_in, make_deployable, parts
from safetensors.torch import load_file

from fedotp.errors import FedotpError
from fedotp.flower.server._registration import Registry
from fedotp.runs.directory import RunDirectory
from fedotp.runs.leaving import check_certificate, forget
from fedotp.runs.leaving._forget import digests_of


@pytest.mark.parametrize("method", ["fedotp", "fedmgp", "promptfl-fedamp"])
def test_a_site_that_nobody_named_may_come_late_and_the_run_be_resumed(
    method: str, inputs: Path, tmp_path: Path, grid: NearGrid
) -> None:
    grid.offline.add(102)  # until the first site trains
    grid.meddle = {100: changed("train", lambda _: grid.offline.clear()), 101: cut_in(4)}
    config = make_deployable(inputs, method={"name": method}, federation={"rounds": 4})
    with pytest.raises(KeyboardInterrupt):
        grid.serve(config, tmp_path / "run", known=False)
    run = NearGrid(parts(tmp_path, 3)).resume(tmp_path / "run", known=False)
    assert RunDirectory(run.path).manifest["clients"] == ["site-0", "site-1", "site-2"]
    assert len(RunDirectory(run.path).manifest["domains"]) == 3
    first, *_, last = answered(run)
    assert first == [0, 1]
    assert last == ([0, 1] if method == "promptfl-fedamp" else [0, 1, 2])  # FedAMP's server has no place for it
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
    run = grid.serve(make_deployable(inputs), tmp_path / "run", classes=("blue", "green", "red"), known=False)
    assert answered(run) == [[0], [0]]
    assert len(grid.exchanged("query")) <= 6, "they are not asked in turn for ever"


def test_sites_replay_without_one(inputs: Path, tmp_path: Path) -> None:
    """The one that left is still there and has its key; the others find what they kept of the old run and ignore it."""
    config = make_deployable(inputs, federation={"participation": 0.7, "rounds": 3})
    whole = NearGrid(parts(tmp_path, 3, share="predictions")).serve(config, tmp_path / "whole")

    prepared, certificate = forget(whole.path, ["site-1"], tmp_path / "left")
    assert certificate is None
    assert not prepared.is_complete
    assert prepared.resume_command.startswith("fedotp server --resume")
    again = NearGrid(parts(tmp_path, 3, share="predictions"))
    left = again.resume(prepared.path)
    assert {message.metadata.dst_node_id for message in again.sent} == {100, 102}
    assert not any("site-1" in str(message.content) for message in again.sent)
    assert not any("site-1" in path.read_text(errors="replace") for path in tmp_path.glob("left/*.jsonl"))
    _, certificate = forget(whole.path, ["site-1"], tmp_path / "left")
    assert certificate is not None
    assert certificate["rounds_taken_part_in"] == {
        "site-1": [record["round"] for record in whole.metrics("round") if 1 in record["answered"]]
    }

    fresh = NearGrid(parts(tmp_path / "elsewhere", 3, share="predictions"))
    never_had = config.override(["federation.without=site-1"])
    never = fresh.serve(never_had, tmp_path / "never")
    assert digests_of(RunDirectory(left.path)) == digests_of(never)
    assert not check_certificate(left.path, never.path)[1]
    assert digests_of(whole)["state"] != digests_of(never)["state"]
    for site in ("site-0", "site-2"):
        one, other = (
            load_file(folder / site / RunDirectory(run.path).manifest["deployment"]["run"] / "private.safetensors")
            for folder, run in ((tmp_path, left), (tmp_path / "elsewhere", never))
        )
        assert one
        assert {name: value.tolist() for name, value in one.items()} == {k: v.tolist() for k, v in other.items()}


def test_without_keys_a_site_that_has_no_part_is_turned_away(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedotp.flower.server._registration._SETTLED", 0.1)
    config = make_deployable(inputs, federation={"rounds": 1, "without": ["site-1"]})
    run = NearGrid(parts(tmp_path, 3)).serve(config, tmp_path / "run", known=False)
    assert run.manifest["clients"] == ["site-0", "site-2"]


def test_a_name_that_has_no_key_is_refused(inputs: Path, tmp_path: Path, grid: NearGrid) -> None:
    config = make_deployable(inputs, federation={"without": ["site-7"]})
    with pytest.raises(FedotpError, match=r'federation.without = \["site-7"\]'):
        grid.serve(config, tmp_path / "run")
