"""The prompts of a run from its directory alone: those the simulator has."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_run import make_config, make_inputs

import fedotp
from anchored import STRUCTURES
from fedotp.errors import FedotpError
from fedotp.runs.one import StoredParameters, restore

FEW: dict[str, Any] = {"federation": {"participation": 0.4, "rounds": 1, "holdout_clients": 0}}


@pytest.mark.parametrize(("name", "reset"), [*((name, False) for name in STRUCTURES), ("fedotp", True)])
def test_what_is_stored_is_what_the_simulator_has(inputs: Path, tmp_path: Path, name: str, reset: bool) -> None:
    method = {"name": name, **({"n_base": 1} if name == "promptfl-fedper" else {})}
    done = fedotp.run(make_config(inputs, method=method, optimizer={"reset": reset}, **FEW), tmp_path / "run")
    server, private, clients = StoredParameters.of(done)
    _, simulator = restore(done.path)
    assert set(private) == set(simulator.private_names)
    assert set(server) == set(simulator.server.params)
    for key, value in server.items():
        assert torch.equal(value, simulator.server.params[key])
    if private:
        assert clients.tolist() == next(done.metrics("round"))["answered"]
        assert len(clients) < 5  # those who never trained have no row
        kept = simulator.kept.read(clients, torch.device("cpu"))
        for key, value in private.items():
            assert torch.equal(value, kept[key])
    else:
        assert not len(clients)


def test_neither_data_nor_backbone_are_needed(tmp_path: Path) -> None:
    inputs = make_inputs(tmp_path)
    done = fedotp.run(make_config(inputs), tmp_path / "run")
    before = StoredParameters.of(done)
    for folder in ("data", "store"):
        shutil.rmtree(inputs / folder)
    (inputs / "tiny.safetensors").unlink()
    after = StoredParameters.of(done.path)
    np.testing.assert_array_equal(before.clients, after.clients)
    assert torch.equal(before.private["private"], after.private["private"])


def test_damage_and_absence_are_refused(inputs: Path, tmp_path: Path) -> None:
    done = fedotp.run(make_config(inputs), tmp_path / "run")
    content = bytearray(done.kept.read_bytes())
    for place in range(0, len(content), 16):
        content[place] ^= 1
    done.kept.write_bytes(content)
    with pytest.raises(FedotpError, match="corrupt"):
        StoredParameters.of(done)
    done.checkpoint.unlink()
    with pytest.raises(FedotpError, match="no checkpoint yet"):
        StoredParameters.of(done)
