"""Differential privacy of the average: what it does to it, what is counted, and what sites cannot do to it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from near_sites import NearGrid, answered, assert_same_server, interrupted, make_deployable, parts, prompt_in, when
from scipy import stats

import fedotp
from fedotp.cli.show import print_run
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint
from fedotp.flower.server import ServerSettings
from fedotp.privacy import Entropy, Mechanism, PrivacySettings, Releases, clipped, epsilon, length
from fedotp.privacy._clipping import clipped_sum
from fedotp.runs.directory import RunDirectory


def hiding_sites(inputs: Path, *, rounds: int = 2, noise: float = 2.0, clip: float = 0.1, **sections: Any) -> Config:
    privacy = {"unit": "site", "noise": noise, "clip": clip, **sections.pop("privacy", {})}
    return make_deployable(inputs, federation={"rounds": rounds}, privacy=privacy, **sections)


def run_private(config: Config, folder: Path, **options: Any) -> tuple[NearGrid, RunDirectory]:
    grid = NearGrid(parts(folder, 3), **options)
    return grid, grid.serve(config, folder / "run", ServerSettings(round_timeout=0.5))


def test_without_noise_it_is_the_simulators(inputs: Path, tmp_path: Path) -> None:
    """And with a wide norm the plain mean, all sites alike, whatever their numbers of images."""
    wide, narrow = (hiding_sites(inputs, rounds=1, noise=0.0, clip=clip) for clip in (1e6, 1e-3))
    grid, run = run_private(wide, tmp_path / "wide")
    mean = torch.from_numpy(np.mean([prompt_in(reply) for _, reply in grid.exchanged("train")], 0)).float()
    torch.testing.assert_close(Checkpoint.read(run.checkpoint).server["shared"], mean, atol=1e-6, rtol=0)
    assert "epsilon" not in run.summary["privacy"]
    grid, run = run_private(narrow, tmp_path / "narrow")
    simulated = fedotp.run(narrow, tmp_path / "simulated")
    assert_same_server(run, simulated, atol=1e-7)
    moved = (
        Checkpoint.read(run.checkpoint).server["shared"] - torch.from_numpy(prompt_in(grid.exchanged("train")[0][0]))
    ).norm()
    assert 0 < moved <= 1e-3 * (1 + 1e-4)


def test_noise_is_added(inputs: Path, tmp_path: Path) -> None:
    silent, noisy = (
        run_private(hiding_sites(inputs, noise=noise), tmp_path / str(noise))[1].checkpoint for noise in (0.0, 1.0)
    )
    apart = (Checkpoint.read(silent).server["shared"] - Checkpoint.read(noisy).server["shared"]).std()
    assert 0.1 / 3 / 2 < apart < 0.1 / 3 * 4  # the noise of two rounds, of deviation clip / sites each, and its effects


def test_the_privacy_spent_is_accounted_for_and_not_forgotten(inputs: Path, tmp_path: Path) -> None:
    """As by the accountant called independently, and as the simulator says it."""
    accounting = pytest.importorskip("dp_accounting")
    config = hiding_sites(inputs)
    _, run = run_private(config, tmp_path)
    accountant = accounting.rdp.RdpAccountant()
    accountant.compose(accounting.GaussianDpEvent(2.0), 2)
    spent = run.summary["privacy"]
    assert spent["releases"] == 2
    assert spent["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6)
    assert fedotp.run(config, tmp_path / "simulated").summary["privacy"] == {
        key: value for key, value in spent.items() if key != "sites"
    }


def test_a_spent_budget_ends_the_run_in_order(inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dp_accounting")
    _, run = run_private(hiding_sites(inputs, privacy={"epsilon": 2.5}), tmp_path)
    assert run.is_complete
    assert run.summary["rounds"] == 1
    assert run.summary["privacy"]["ended_the_run"]
    assert run.summary["privacy"]["epsilon"] <= 2.5
    assert len(run.summary["clients"]) == 3
    for site in range(3):
        assert (tmp_path / f"site-{site}" / "classifier" / "prompts.safetensors").is_file()
    print_run(run)
    assert "ended by the privacy budget, after round 1: epsilon 2.166" in capsys.readouterr().out


# The mechanism -------------------------------------------------------------------------------------------------


def prompts(*values: float) -> dict[str, torch.Tensor]:
    return {"shared": torch.tensor(values, dtype=torch.float32)}


vectors = st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3).map(lambda values: prompts(*values))


@settings(deadline=None, max_examples=200)
@given(start=vectors, others=st.lists(vectors, max_size=4), update=vectors, replaced=vectors, clip=st.floats(1e-3, 1e3))
def test_one_site_moves_the_sum_by_no_more_than_the_norm(
    start: Any, others: list[Any], update: Any, replaced: Any, clip: float
) -> None:
    without, with_it = clipped_sum(others, start, clip), clipped_sum([*others, update], start, clip)
    assert length(with_it, without) <= clip * (1 + 1e-9) + 1e-9
    idle = clipped_sum([*others, start], start, clip)  # the prompt, sent back as it was
    torch.testing.assert_close(idle, without, atol=0, rtol=0)
    assert length(clipped(update, start, clip), start) <= clip * (1 + 1e-6) + 1e-6 * length(start)


def test_the_divisor_is_fixed_whoever_answers(tmp_path: Path) -> None:
    silent = Mechanism(PrivacySettings("site", noise=0.0, clip=10.0), 4, Releases(tmp_path / "releases"))
    start, update = prompts(1, 2, 3), prompts(1, 2, 7)
    for n in range(1, 5):
        released = silent.release(start, [update] * n, 4, 1)
        torch.testing.assert_close(released, prompts(1, 2, 3 + n), atol=0, rtol=0)
    halved = silent.release(start, [update], 2, 1)  # where half of the sites are asked
    torch.testing.assert_close(halved, prompts(1, 2, 5), atol=0, rtol=0)


def test_noise_is_gaussian_and_as_much_as_is_accounted_for(tmp_path: Path) -> None:
    mechanism = Mechanism(PrivacySettings("site", noise=1.5, clip=0.2), 5, Releases(tmp_path / "releases"))
    start = {"shared": torch.zeros(100, 200)}
    released = mechanism.release(start, [start] * 3, 5, 1)["shared"].numpy().ravel()
    scale = 1.5 * 0.2 / 5
    assert stats.kstest(released / scale, "norm").pvalue > 1e-6
    assert released.std() == pytest.approx(scale, rel=0.03)  # six times the deviation of 20,000


def test_noise_does_not_come_from_a_generator_that_can_be_seeded() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(0)
        torch.manual_seed(0)
        draws.append(Entropy().standard_normal((8,)))
    assert not np.isin(draws[0], draws[1]).any()


# Kills, and sites that do not do their part ---------------------------------------------------------------------


def test_a_release_is_counted_before_it_leaves(inputs: Path, tmp_path: Path) -> None:
    """Killed when the first site sees the average of round 1: the round is made again, and that is a second release."""
    pytest.importorskip("dp_accounting")
    sites = parts(tmp_path, 3)

    def cut(message: Message, reply: Message) -> Message:
        if message.content.config_records["config"]["server-round"] == 1:
            raise PowerCutError
        return reply

    grid = NearGrid(sites, meddle={100: when("evaluate", cut)})
    with pytest.raises(PowerCutError):
        grid.serve(hiding_sites(inputs), tmp_path / "run")
    assert not list(RunDirectory.open(tmp_path / "run").metrics("round"))[1:]
    run = NearGrid(sites).resume(tmp_path / "run")
    assert run.summary["privacy"]["releases"] == 3
    assert run.summary["privacy"]["epsilon"] == pytest.approx(epsilon(2.0, 3, 1e-5))


class PowerCutError(Exception):
    """The server is no more."""


def test_a_record_cut_short_was_no_release_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "releases.jsonl"
    Releases(path).add({"round": 1, "sites": 3})
    path.write_bytes(path.read_bytes() + b'{"round": 2, "ne')
    releases = Releases(path)
    assert releases.count == 1
    releases.add({"round": 2, "sites": 3})
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == [1, 2]
    for damaged in (b"[]\n", b"{}\n", b"\xff\n"):
        path.write_bytes(damaged)
        with pytest.raises(FedotpError, match="is corrupt"):
            Releases(path)


def test_a_site_that_sends_the_prompt_back_unchanged_does_not_end_the_run(inputs: Path, tmp_path: Path) -> None:
    def unchanged(message: Message, reply: Message) -> Message:
        reply.content["arrays"] = message.content.array_records["arrays"]
        return reply

    _, run = run_private(hiding_sites(inputs, rounds=1), tmp_path, meddle={101: when("train", unchanged)})
    assert answered(run) == [[0, 1, 2]]


def test_a_private_run_goes_on_with_a_fourth_site(inputs: Path, tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    sites = interrupted(hiding_sites(inputs), tmp_path).nodes
    more = NearGrid({**sites, 103: {**sites[102], "name": "site-3", "state": str(tmp_path / "site-3")}})
    run = more.resume(tmp_path / "run")
    assert answered(run) == [[0, 1, 2], [0, 1, 2, 3]]
    assert run.summary["privacy"]["sites"] == 4
