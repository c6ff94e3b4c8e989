"""Secure sums with sites in this process: the plain federation's numbers, and updates that the server never has."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from near_sites import NearGrid, answered, interrupted, make_deployable, parts, when, with_keys

import fedotp
from fedotp.cli.show import print_run
from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint
from fedotp.flower.secure import _server_side, _site_side
from fedotp.flower.secure._fixed_point import FixedPoint
from fedotp.flower.server import ServerSettings, _secure_rounds
from fedotp.methods import METHODS

QUICK = ServerSettings(secure=True, round_timeout=0.2, patience=0.0)
STEPS = ("query.secure_keys", "query.secure_shares", "train", "query.secure_survivors", "query.secure_signatures")
N = 4


pytestmark = pytest.mark.usefixtures("hurry")


class Heard:
    """The rows that sites masked, their updates, and the totals that the server opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[np.ndarray] = []
        self.updates: list[tuple[dict[str, np.ndarray], int]] = []
        self.totals: list[tuple[FixedPoint, np.ndarray]] = []
        row_of, average_of = _site_side.row_of, _server_side.average_of

        def masking(fixed: FixedPoint, values: dict[str, np.ndarray], **facts: Any) -> np.ndarray:
            self.rows.append(row_of(fixed, values, **facts))
            self.updates.append((values, facts["weight"]))
            return self.rows[-1]

        def opening(fixed: FixedPoint, total: np.ndarray, like: Any) -> Any:
            self.totals.append((fixed, total))
            return average_of(fixed, total, like)

        monkeypatch.setattr(_site_side, "row_of", masking)
        monkeypatch.setattr(_server_side, "average_of", opening)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    return Heard(monkeypatch)


def of_four(inputs: Path, **sections: Any) -> Any:
    return make_deployable(inputs, **sections).override([f"partition.n_clients={N}"])


def total_of(rows: list[np.ndarray]) -> list[int]:
    return [sum(int(number) for number in column) % 2**64 for column in zip(*rows, strict=True)]


def test_the_result_is_the_plain_federations_up_to_the_fixed_points_rounding(
    inputs: Path, tmp_path: Path, heard: Heard, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_deployable(inputs, federation={"rounds": 1})
    runs = {}
    for name, settings in (("plain", replace(QUICK, secure=False)), ("secure", QUICK)):
        runs[name] = NearGrid(parts(tmp_path / name, 3)).serve(config, tmp_path / name / "run", settings)
    plain, secure = (Checkpoint.read(run.checkpoint).server for run in runs.values())
    ((fixed, total),) = heard.totals
    assert total.tolist() == total_of(heard.rows)
    weights = [weight for _, weight in heard.updates]
    exact = sum(values["shared"].astype(np.float64) * weight for values, weight in heard.updates) / sum(weights)
    rounding = len(weights) * 2.0 ** -(fixed.bits + 1) / sum(weights)
    np.testing.assert_allclose(secure["shared"].double().numpy(), exact, rtol=2**-24, atol=rounding)
    torch.testing.assert_close(secure, plain, rtol=2**-23, atol=2 * rounding)
    print_run(runs["secure"])
    assert "by the server, in 1 secure sum" in capsys.readouterr().out
    assert runs["secure"].summary["secure"] == {"threshold": 2 / 3, "range": 64, "sums": 1, "void": 0}
    (one,), (other,) = (run.metrics("round") for run in runs.values())
    assert one["loss"] == pytest.approx(other["loss"])
    assert other["client_loss"] == [None] * 3


def test_means_of_a_closed_form_add_up_to_the_simulators(inputs: Path, tmp_path: Path, heard: Heard) -> None:
    """Means of x x' and x y' are within [-1, 1], and every site's counts by its number of images."""
    config = make_deployable(inputs, method={"name": "ridge", "personal": 5.0})
    simulated = fedotp.run(config, tmp_path / "simulated")
    secure = NearGrid(parts(tmp_path, 3, share="predictions")).serve(config, tmp_path / "run", QUICK)
    ((fixed, _),) = heard.totals
    images = [len(client.train) for client in simulated.partition.clients]
    assert [weight for _, weight in heard.updates] == images
    assert len({*images}) > 1
    assert max(np.abs(value).max() for values, _ in heard.updates for value in values.values()) <= 1
    exact = sum(values["gram"] * weight for values, weight in heard.updates) / sum(images)
    found, plain = (Checkpoint.read(run.checkpoint).server for run in (secure, simulated))
    np.testing.assert_allclose(found["gram"].numpy(), exact, rtol=0, atol=2.0 ** -(fixed.bits + 1))
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-6)  # sites read images one by one, in float32
    assert secure.summary["secure"]["sums"] == 1
    assert secure.summary["final"]["accuracy"] == simulated.summary["final"]["accuracy"]


def test_losses_of_a_personal_ridge_add_up_to_the_simulators(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs, method={"name": "personal-ridge"})
    simulated = fedotp.run(config, tmp_path / "simulated")
    secure = NearGrid(parts(tmp_path, 3, share="predictions")).serve(config, tmp_path / "run", QUICK)
    found, plain = (Checkpoint.read(run.checkpoint).server for run in (secure, simulated))
    assert plain["losses"].any()
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-4)
    assert secure.summary["secure"]["sums"] == 2
    assert secure.summary["final"]["accuracy"] == simulated.summary["final"]["accuracy"]


def test_a_site_lost_at_any_step_costs_no_round_and_no_bit(inputs: Path, tmp_path: Path, heard: Heard) -> None:
    """In each of five rounds, it falls silent at another step."""
    config = of_four(inputs, federation={"rounds": 5})
    grid, public_keys = with_keys(tmp_path, N, policy="secure_sums = true")
    silent = list(zip(STEPS, "12345", strict=True))
    grid.meddle[102] = lambda message, reply: (
        None if (message.metadata.message_type, message.metadata.group_id) in silent else reply
    )
    run = grid.serve(config, tmp_path / "run", QUICK, public_keys=public_keys)
    assert answered(run) == [[0, 1, 3]] * 3 + [[0, 1, 2, 3]] * 2
    assert run.summary["secure"]["void"] == 0
    facts = [reply.content.config_records.get("config", {}) for reply in grid.answered]
    keys = [each["secure_keys"] for each in facts if "secure_keys" in each]
    assert len(set(keys)) == len(keys) == 5 * N  # no key serves twice
    rows = iter(heard.rows)
    for number, (_, total) in enumerate(heard.totals):
        asked = [next(rows) for _ in range(N if number > 1 else N - 1)]
        if number == 2:  # it had masked its numbers, which did not arrive
            del asked[2]
        assert total.tolist() == total_of(asked)


def test_a_round_that_too_few_are_left_of_is_made_again(inputs: Path, tmp_path: Path, heard: Heard, lines: Any) -> None:
    config = of_four(inputs, federation={"rounds": 1})
    grid = NearGrid(parts(tmp_path, N))
    once = when("train", lambda _, reply: reply if len(grid.exchanged("train")) > N else None)
    grid.meddle = {100: once, 101: once}
    run = grid.serve(config, tmp_path / "run", QUICK)
    assert run.summary["secure"] == {"threshold": 2 / 3, "range": 64, "sums": 1, "void": 1}
    assert "2 of 4 sites sent masked values, need 3; repeating the secure sum in" in lines.text
    assert heard.totals[0][1].tolist() == total_of(heard.rows[-N:])
    assert len({row.tobytes() for row in heard.rows}) == N  # the same work, from where they stood before
    assert len(heard.totals) == 1


# What the server holds -------------------------------------------------------------------------------------------


def test_what_sites_do_not_share_is_not_in_the_sum(inputs: Path, tmp_path: Path, heard: Heard) -> None:
    sites = parts(tmp_path, 3)
    sites[100]["share"] = sites[101]["share"] = "nothing"
    run = NearGrid(sites).serve(make_deployable(inputs, federation={"rounds": 1}), tmp_path / "run", QUICK)
    assert [row[1] for row in heard.rows[:2]] == [0, 0]
    assert [row[3] for row in heard.rows[:2]] == [0, 0]
    assert next(iter(run.metrics("round")))["loss"] is not None


# Who signs -------------------------------------------------------------------------------------------------------


def test_a_site_that_one_does_not_know_makes_it_refuse(inputs: Path, tmp_path: Path, lines: Any) -> None:
    """As if the server had invented it."""
    grid, _ = with_keys(tmp_path, 3)
    grid.nodes[102] = {key: value for key, value in grid.nodes[102].items() if key != "keys"}
    with pytest.raises(FedotpError, match="secure sum failed 2 times in a row: only 1 of 3 sites sent shares"):
        grid.serve(make_deployable(inputs), tmp_path / "run", QUICK)
    assert "invalid signature of site 'site-2'" in lines.text


def test_a_site_whose_signature_is_wrong_is_out_and_the_others_go_on(inputs: Path, tmp_path: Path, lines: Any) -> None:
    grid, keys = with_keys(tmp_path, 3)
    grid.nodes[103] = {"part": 0, "name": "site-3", "state": str(tmp_path / "site-3")}
    run = grid.serve(
        of_four(inputs, federation={"rounds": 1}),
        tmp_path / "run",
        QUICK,
        public_keys={**keys, "site-3": keys["site-0"]},
    )
    assert next(iter(run.metrics("round")))["answered"] == [0, 1, 2]
    assert "site site-3: invalid signature of site 'site-3'" in lines.text


# What does not go together ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "settings", "why"),
    [
        ({"method": {"name": "promptfl-fedamp"}}, {}, r'method.name = "promptfl-fedamp": .* \(Eq. 4\)'),
        ({"method": {"name": "fedclip"}}, {}, r'method.name = "fedclip": .* use "fedotp" or "promptfl"'),
        ({"method": {"name": "fedcof"}}, {}, r'method.name = "fedcof": .* \(Eq. 4\)'),
        ({"method": {"name": "coop"}}, {}, ".*: its server computes no average"),
        ({"server": {"rule": "median"}}, {}, 'server.rule = "median": .*cannot compare updates'),
        ({"privacy": {"unit": "site"}}, {}, 'privacy.unit = "site": .*cannot clip updates'),
        ({}, {"max_times": 3.0}, "max-times = 3: .*cannot clip updates; .* --max-images"),
        ({"federation": {"participation": 0.5}}, {}, "2 of 3 sites in a round: a sum requires at least 3"),
    ],
)
def test_what_a_sum_cannot_do_is_refused_with_its_reason(
    changes: dict[str, Any], settings: dict[str, Any], why: str, inputs: Path, tmp_path: Path, grid: NearGrid
) -> None:
    with pytest.raises(FedotpError, match=f"secure sums are incompatible with {why}") as refusal:
        grid.serve(make_deployable(inputs, **changes), tmp_path / "run", replace(QUICK, **settings))
    assert "\n" not in str(refusal.value)
    assert not grid.exchanged("train")


def test_the_page_names_the_methods_that_cannot_be_added_up() -> None:
    page = (Path(__file__).parents[2] / "docs/secure.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| methods whose server")]
    assert set(re.findall(r"`([\w-]+)`", row)) == {name for name, method in METHODS.items() if not method().averages}


@pytest.mark.parametrize(
    ("policy", "settings", "why"),
    [
        ("secure_sums = true", {"secure": False}, "policy: secure sums are required; start the server with --secure"),
        ("secure_sums = true", {}, "policy: this site has no peers.crt"),
        ("secure_sites = 4", {}, "policy: sites in a secure sum must be at least 4, got 3"),
    ],
)
def test_a_site_can_insist(
    policy: str, settings: dict[str, Any], why: str, inputs: Path, tmp_path: Path, lines: Any
) -> None:
    grid = NearGrid(parts(tmp_path, 3, policy=policy))
    with pytest.raises(FedotpError, match=r"every site was refused|failed 2 times"):
        grid.serve(make_deployable(inputs), tmp_path / "run", replace(QUICK, **settings))
    assert re.search(why, lines.text)
    assert not any(message.content.array_records for message in grid.answered)


def test_a_sum_that_was_opened_and_not_written_down_is_opened_again_after_a_resume(
    inputs: Path, tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sites have helped to open it, and see that everything is the same."""
    grid, public_keys = with_keys(tmp_path, N, policy="secure_sums = true")
    with monkeypatch.context() as patch:
        total = _secure_rounds.ServerSession.total

        def opening(attempt: _secure_rounds.ServerSession) -> np.ndarray:
            opened = total(attempt)
            if attempt.session.round == 2:
                heard.totals.append((attempt.cohort.fixed, opened))
                raise KeyboardInterrupt
            return opened

        patch.setattr(_secure_rounds.ServerSession, "total", opening)
        with pytest.raises(KeyboardInterrupt):
            grid.serve(of_four(inputs), tmp_path / "run", QUICK, public_keys=public_keys)
    run = grid.resume(tmp_path / "run", QUICK, public_keys=public_keys)
    assert run.summary["secure"] == {"threshold": 2 / 3, "range": 64, "sums": 2, "void": 0}
    _, (_, first), (_, second) = heard.totals
    np.testing.assert_array_equal(first, second)


def test_a_run_that_goes_on_stays_secure(inputs: Path, tmp_path: Path) -> None:
    again = NearGrid(interrupted(make_deployable(inputs), tmp_path, QUICK).nodes)
    with pytest.raises(FedotpError, match=r"secure-threshold = 0.5: a resumed run cannot change 0.66"):
        again.resume(tmp_path / "run", replace(QUICK, secure_threshold=0.5))
    run = again.resume(tmp_path / "run", replace(QUICK, secure=False))  # nothing was said of it
    assert run.summary["secure"]["sums"] == 2
    assert all("masked" in reply.content.array_records["arrays"] for _, reply in again.exchanged("train"))
