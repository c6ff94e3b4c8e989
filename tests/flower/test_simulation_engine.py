"""Flower's simulation engine drives the same app."""

from pathlib import Path

import pytest
import torch
from near_sites import make_deployable
from plain_flower import plain_flower

import fedotp
from fedotp.federation import Checkpoint
from fedotp.runs.directory import RunDirectory

pytest.importorskip("ray")


@pytest.mark.processes
def test_flowers_virtual_sites_end_with_the_simulators_prompt(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs)
    (tmp_path / "study.toml").write_text(config.to_toml())
    simulated = fedotp.run(config, tmp_path / "simulated")
    with plain_flower(tmp_path / "flower", simulated=3) as flower:
        flower.run(tmp_path / "study.toml", tmp_path / "run")
    run = RunDirectory.open(tmp_path / "run")
    assert run.manifest["clients"] == ["client-0", "client-1", "client-2"]
    expected, found = Checkpoint.read(simulated.checkpoint).server, Checkpoint.read(run.checkpoint).server
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert run.summary["final"]["accuracy"] == pytest.approx(simulated.summary["final"]["accuracy"])
