"""Robust rules at the server of real sites: the simulator's numbers, and little harm from a site that lies."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message
from near_sites import NearGrid, assert_same_server, make_deployable, named, parts

import fedotp
from fedotp.federation import Checkpoint
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._serve import serve

RULES: dict[str, dict[str, Any]] = {
    "bounded": {},
    "median": {},
    "trimmed": {"malicious": 1},
    "krum": {"malicious": 0},
    "multi-krum": {"malicious": 0, "kept": 2},
}


@pytest.mark.parametrize("rule", RULES)
def test_sites_end_with_the_simulators_prompts(rule: str, inputs: Path, tmp_path: Path) -> None:
    server = {"rule": rule, "name": "momentum", "lr": 0.5, **RULES[rule]}
    config = make_deployable(inputs, server=server, federation={"rounds": 1})
    simulated = fedotp.run(config, tmp_path / "simulated")
    grid = NearGrid(parts(tmp_path, 3))
    deployed = serve(grid, config, ServerSettings(), tmp_path / "deployed", **named(grid))
    expected, found = Checkpoint.read(simulated.checkpoint).server, Checkpoint.read(deployed.checkpoint).server
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    averaged = [[record.get("averaged") for record in run.metrics("round")] for run in (deployed, simulated)]
    assert averaged[0] == averaged[1]
    assert (averaged[0][0] is not None) == ("krum" in rule)


def test_a_round_of_too_few_changes_nothing_and_is_told(
    inputs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def silent(message: Message, reply: Message) -> Message | None:
        return None if message.metadata.message_type == "train" else reply

    config = make_deployable(inputs, server={"rule": "trimmed", "malicious": 1}, federation={"rounds": 1})
    grid = NearGrid(parts(tmp_path, 3), meddle={101: silent})
    with caplog.at_level(logging.WARNING, "fedotp.server"):
        run = serve(grid, config, ServerSettings(round_timeout=1, patience=0), tmp_path / "run", **named(grid))
    assert "round 1: 2 updates are too few for server.rule = 'trimmed': nothing is averaged" in caplog.text
    untrained = fedotp.run(config.override(["federation.rounds=0"]), tmp_path / "untrained")
    assert_same_server(run, untrained)
