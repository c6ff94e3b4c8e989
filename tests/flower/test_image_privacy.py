"""Sites whose images are private: the simulator's steps with noise nobody can foretell, and an account at the site."""

import json
from pathlib import Path

import pytest
import torch
from flwr.app import Message
from near_sites import NearGrid, make_deployable, named, parts

import fedotp
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation import load_server
from fedotp.flower import _messages as words
from fedotp.flower.server._serve import serve
from fedotp.flower.server._settings import ServerSettings
from fedotp.privacy import Entropy

NOISE = 2.0


def private(inputs: Path, *changes: str, **sections: object) -> Config:
    config = make_deployable(inputs, **sections)
    return config.override(["privacy.unit=example", f"privacy.noise={NOISE}", "privacy.private=true", *changes])


def trained(grid: NearGrid) -> list[Message]:
    found = [reply.content.metric_records.get(words.METRICS, {}) for reply in grid.answered]
    return [metrics for metrics in found if words.STEPS in metrics]


@pytest.mark.parametrize("own", ["true", "false"])
def test_a_site_makes_the_simulator_s_steps(
    own: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the simulator's noise in place of entropy; what is spent is the simulator's in any case."""
    config = private(inputs, f"privacy.private={own}")
    simulated = fedotp.run(config, tmp_path / "simulated")
    monkeypatch.setattr("fedotp.flower.site._site.Entropy", lambda: None)
    grid = NearGrid(parts(tmp_path, 3, share="predictions"))
    deployed = serve(grid, config, ServerSettings(), tmp_path / "deployed", **named(grid))
    torch.testing.assert_close(load_server(deployed.checkpoint), load_server(simulated.checkpoint), atol=1e-6, rtol=0)
    expected, found = simulated.summary["privacy"], deployed.summary["privacy"]
    assert list(found["clients"].values()) == list(expected["clients"].values())
    assert found["epsilon"] == expected["epsilon"] == list(deployed.metrics("round"))[-1]["epsilon"]
    assert all(words.LOSS not in metrics for metrics in trained(grid))
    assert [record["loss"] for record in deployed.metrics("round")] == [None, None]
    # What predicts has learned without noise unless it is covered: then nothing is told of its tests.
    assert bool(deployed.summary["final"]) == (own == "true")


def test_noise_is_never_the_same_and_a_round_made_again_is_paid_for_again(inputs: Path, tmp_path: Path) -> None:
    config = private(inputs)
    folder = tmp_path / "sites"
    grid = NearGrid(parts(folder, 3, share="nothing"))
    lost = []

    def lose_once(_message: Message, reply: Message) -> Message | None:
        told = words.STEPS in reply.content.metric_records.get(words.METRICS, {})
        if told and not lost:
            lost.append(reply)
            return None
        return reply

    grid.meddle = {101: lose_once}
    deployed = serve(grid, config, ServerSettings(round_timeout=0.01), tmp_path / "run", **named(grid))
    assert len(lost) == 1
    # The server has one update of site-1, the site has sent two: its own account counts both, and tells so.
    lines = [json.loads(line) for line in next(folder.glob("site-1/*/releases.jsonl")).read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2]
    assert trained(grid)[-1][words.STEPS] > 0
    spent = deployed.summary["privacy"]["clients"]
    assert spent["site-1"] > 0
    again = serve(NearGrid(parts(tmp_path / "more", 3)), config, ServerSettings(), tmp_path / "again")
    one, other = load_server(deployed.checkpoint), load_server(again.checkpoint)
    assert max(float((one[name] - other[name]).abs().max()) for name in one) > 1e-3


def test_a_budget_ends_the_run_in_order_and_a_site_keeps_to_it_by_itself(inputs: Path, tmp_path: Path) -> None:
    free = serve(NearGrid(parts(tmp_path / "a", 3)), private(inputs), ServerSettings(), tmp_path / "free")
    after = [record["epsilon"] for record in free.metrics("round")]
    limited = private(inputs, f"privacy.epsilon={(after[0] + after[1]) / 2}")
    grid = NearGrid(parts(tmp_path / "b", 3))
    done = serve(grid, limited, ServerSettings(), tmp_path / "limited", **named(grid))
    assert done.summary["rounds"] == 1
    assert done.summary["privacy"]["ended_the_run"]
    assert done.summary["privacy"]["epsilon"] == after[0]


def test_entropy_is_uniform_and_normal() -> None:
    uniform, normal = Entropy().random(20_000), Entropy().standard_normal((100, 200))
    assert 0 <= uniform.min() < 0.01 < 0.99 < uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.02
    assert normal.shape == (100, 200)
    assert abs(normal.std() - 1) < 0.03
    assert abs(normal.mean()) < 0.04


@pytest.mark.parametrize(
    ("change", "settings", "why"),
    [
        ("privacy.unit=site", {}, 'privacy.unit = "site": is for simulations'),
        ("privacy.unit=example", {"privacy": "server"}, "privacy = 'server': must be 'none' where the sites' images"),
    ],
)
def test_what_does_not_go_together_is_refused(
    change: str, settings: dict, why: str, inputs: Path, tmp_path: Path
) -> None:
    config = make_deployable(inputs).override([change])
    with pytest.raises(FedotpError, match=why):
        serve(NearGrid(parts(tmp_path, 3)), config, ServerSettings(**settings), tmp_path / "run")
