"""Verification of real sites' runs: every aggregation is repeated, every forgery is found and located."""

from pathlib import Path
from typing import Any

import pytest
from near_sites import make_deployable, named, with_keys

from fedotp.flower.server import ServerSettings, verify_run
from fedotp.flower.server._serve import serve

KINDS: dict[str, tuple[dict[str, Any], ServerSettings]] = {
    "plain": ({}, ServerSettings()),
    "momentum": ({"server": {"name": "momentum"}}, ServerSettings(max_times=1.0)),
    "adam": ({"server": {"name": "adam"}}, ServerSettings()),
    "krum": ({"server": {"rule": "multi-krum", "malicious": 0}}, ServerSettings(max_images=3)),
    "median": ({"server": {"rule": "median"}}, ServerSettings()),
    "FedAMP": ({"method": {"name": "promptfl-fedamp"}}, ServerSettings()),
    "ridge": ({"method": {"name": "ridge"}, "federation": {"rounds": 1}}, ServerSettings()),
    "local": ({"method": {"name": "coop"}}, ServerSettings()),
    "central noise": ({"privacy": {"unit": "site", "noise": 1.0, "delta": 1e-3}}, ServerSettings()),
    "secure": ({}, ServerSettings(secure=True)),
}


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("site-*/transcripts/*.jsonl"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_aggregation_is_repeated_bit_for_bit(kind: str, inputs: Path, tmp_path: Path) -> None:
    sections, settings = KINDS[kind]
    grid, keys = with_keys(tmp_path, 3)
    run = serve(grid, make_deployable(inputs, **sections), settings, tmp_path / "run", **named(grid), public_keys=keys)
    found = verify_run(run.path, logs_of(tmp_path))
    assert (found.wrong, found.notes) == ([], [])
    assert found.rounds == found.repeated == run.config.federation.rounds
    assert found.statements == 3 * found.rounds
