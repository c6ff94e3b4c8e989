"""A federation of real sites does what the simulator does: the same prompts, the same numbers."""

from pathlib import Path

import pytest
import torch
from near_sites import NearGrid, make_deployable, parts

import fedotp
from fedotp.federation import load_server
from fedotp.flower._serve import serve
from fedotp.flower._settings import ServerSettings

METHODS = ["fedotp", "coop", "promptfl", "promptfl-ft", "promptfl-fedprox", "promptfl-fedper"]
METHODS += ["promptfl-fedamp", "pfedprompt"]


@pytest.mark.parametrize("method", METHODS)
def test_sites_end_with_the_simulators_prompts(method: str, inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs, method={"name": method})
    simulated = fedotp.run(config, tmp_path / "simulated")
    deployed = serve(NearGrid(parts(tmp_path, 3, share="predictions")), config, ServerSettings(), tmp_path / "deployed")
    expected, found = load_server(simulated.checkpoint), load_server(deployed.checkpoint)
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], atol=1e-6, rtol=0)
    assert deployed.summary["final"]["accuracy"] == pytest.approx(simulated.summary["final"]["accuracy"])
    assert deployed.summary["final"]["loss"] == pytest.approx(simulated.summary["final"]["loss"], abs=1e-5)
