"""A real federation goes back to the start without a site: the run that never had it, to the bit."""

from pathlib import Path

import pytest
from near_sites import NearGrid, make_deployable, named, parts
from safetensors.torch import load_file

from fedotp.errors import FedotpError
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._serve import resume_serving, serve
from fedotp.runs.directory import RunDirectory
from fedotp.runs.leaving import check_certificate, forget, plan_value
from fedotp.runs.leaving._forget import digests_of

QUICK = ServerSettings(round_timeout=0.5, start_timeout=20)


def test_sites_replay_without_one(inputs: Path, tmp_path: Path) -> None:
    """The one that left is still there and has its key; the others find what they kept of the old run and ignore it."""
    config = make_deployable(inputs, federation={"participation": 0.7, "rounds": 3})
    grid = NearGrid(parts(tmp_path, 3, share="predictions"))
    whole = serve(grid, config, QUICK, tmp_path / "whole", **named(grid))

    prepared, certificate = forget(whole.path, ["site-1"], tmp_path / "left")
    assert certificate is None
    assert not prepared.is_complete
    assert prepared.resume_command.startswith("fedotp server --resume")
    again = NearGrid(parts(tmp_path, 3, share="predictions"))
    left = resume_serving(again, prepared.path, QUICK, **named(again))  # type: ignore[arg-type]
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
    never = serve(fresh, never_had, QUICK, tmp_path / "never", **named(fresh))
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
    run = serve(NearGrid(parts(tmp_path, 3)), config, QUICK, tmp_path / "run")
    assert run.manifest["clients"] == ["site-0", "site-2"]
    with pytest.raises(FedotpError, match="real sites: what each contributed takes many runs"):
        plan_value(run.path)


def test_a_name_that_has_no_key_is_refused(inputs: Path, tmp_path: Path) -> None:
    grid = NearGrid(parts(tmp_path, 3))
    config = make_deployable(inputs, federation={"without": ["site-7"]})
    with pytest.raises(FedotpError, match=r'federation.without = \["site-7"\]'):
        serve(grid, config, QUICK, tmp_path / "run", **named(grid))
