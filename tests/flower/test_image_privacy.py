"""Sites whose images are private: the simulator's steps with noise nobody can foretell, and an account at the site."""

import json
import math
import shutil
from pathlib import Path

import pytest
from dp_accounting import (
    ComposedDpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    rdp,
)
from flwr.app import Message
from near_sites import LyingServer, NearGrid, answered, assert_same_server, make_deployable, parts, silent
from real_processes import make_study, processes

import fedotp
from fedotp.config import Config
from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint, Settings
from fedotp.flower import _wire as wire
from fedotp.flower._agreement import Agreement
from fedotp.flower.server import ServerSettings
from fedotp.flower.site._policy import Policy
from fedotp.flower.site._state import Ledger, PrivateFile
from fedotp.privacy import Entropy

NOISE = 2.0


def private(inputs: Path, *changes: str, **sections: object) -> Config:
    config = make_deployable(inputs, **sections)
    return config.override(["privacy.unit=example", f"privacy.noise={NOISE}", "privacy.private=true", *changes])


def trained(grid: NearGrid) -> list[Message]:
    found = [reply.content.metric_records.get(wire.METRICS, {}) for reply in grid.answered]
    return [metrics for metrics in found if wire.STEPS in metrics]


@pytest.mark.parametrize("own", ["true", "false"])
@pytest.mark.parametrize(("method", "releases"), [("fedotp", 6), ("ridge", 1), ("fedcof", 1)])
def test_a_site_makes_the_simulator_s_steps(
    method: str, releases: int, own: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the simulator's noise in place of entropy; what is spent is the simulator's in any case.

    A method in closed form makes one release of all images, whatever the size of batches.
    """
    config = private(inputs, f"privacy.private={own}", method={"name": method})
    simulated = fedotp.run(config, tmp_path / "simulated")
    monkeypatch.setattr("fedotp.flower.site._site.Entropy", lambda: None)
    grid = NearGrid(parts(tmp_path, 3, share="predictions"))
    deployed = grid.serve(config, tmp_path / "deployed")
    assert_same_server(deployed, simulated, atol=1e-6)
    expected, found = simulated.summary["privacy"], deployed.summary["privacy"]
    assert list(found["clients"].values()) == list(expected["clients"].values())
    assert found["epsilon"] == expected["epsilon"] == list(deployed.metrics("round"))[-1]["epsilon"]
    assert found["releases"] == expected["releases"] == releases
    if releases == 1:
        assert found["epsilon"] == pytest.approx(rdp.RdpAccountant().compose(GaussianDpEvent(NOISE)).get_epsilon(1e-5))
        lines = [json.loads(line) for line in (tmp_path / "site-0/releases.jsonl").read_text().splitlines()]
        assert [(line["rate"], line["steps"]) for line in lines] == [(1.0, 1)]
    assert all(wire.LOSS not in metrics for metrics in trained(grid))
    assert {record["loss"] for record in deployed.metrics("round")} == {None}
    # What predicts has learned without noise unless it is covered: then nothing is told of its tests.
    assert bool(deployed.summary["final"]) == (own == "true")


def test_noise_is_never_the_same_and_a_round_made_again_is_paid_for_again(inputs: Path, tmp_path: Path) -> None:
    config, folder = private(inputs), tmp_path / "sites"
    grid = NearGrid(parts(folder, 3, share="nothing"), meddle={101: silent(1)})
    deployed = grid.serve(config, tmp_path / "run", ServerSettings(round_timeout=0.01))
    # The server has one update of site-1, the site has sent two: its own account counts both, and tells so.
    lines = [json.loads(line) for line in (folder / "site-1/releases.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2]
    assert trained(grid)[-1][wire.STEPS] > 0
    spent = deployed.summary["privacy"]["clients"]
    assert spent["site-1"] > 0
    again = NearGrid(parts(tmp_path / "more", 3)).serve(config, tmp_path / "again", known=False)
    one, other = Checkpoint.read(deployed.checkpoint).server, Checkpoint.read(again.checkpoint).server
    assert max(float((one[name] - other[name]).abs().max()) for name in one) > 1e-3


def test_a_budget_ends_the_run_in_order_and_a_site_keeps_to_it_by_itself(inputs: Path, tmp_path: Path) -> None:
    free = NearGrid(parts(tmp_path / "a", 3)).serve(private(inputs), tmp_path / "free", known=False)
    after = [record["epsilon"] for record in free.metrics("round")]
    limited = private(inputs, f"privacy.epsilon={(after[0] + after[1]) / 2}")
    done = NearGrid(parts(tmp_path / "b", 3)).serve(limited, tmp_path / "limited")
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


# What a site's owner requires, and a server that lies ------------------------------------------------------------

BUDGET = 8.0
WARY = {"policy": f"epsilon = {BUDGET}\ndelta = 1e-5\nnoise = 1.0"}


@pytest.fixture
def liar(inputs: Path, tmp_path: Path) -> LyingServer:
    return LyingServer(parts(tmp_path, 1, **WARY)[100], private(inputs))


def ledger_of(server: LyingServer) -> Path:
    return Path(server.site["state"]) / "releases.jsonl"


def oracle(path: Path, delta: float = 1e-5) -> float:
    """The epsilon of a ledger's lines, by the accountant called as its documentation does."""
    events = []
    for line in map(json.loads, path.read_text().splitlines()):
        release = GaussianDpEvent(line["noise"])
        step = PoissonSampledDpEvent(line["rate"], release) if line["rate"] < 1 else release
        events.append(SelfComposedDpEvent(step, line["steps"]))
    relation = NeighboringRelation.REPLACE_SPECIAL
    return rdp.RdpAccountant(neighboring_relation=relation).compose(ComposedDpEvent(events)).get_epsilon(delta)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("privacy.unit=none", "policy: privacy.unit must be one of example, group; got none"),
        ("privacy.unit=site", "policy: privacy.unit must be one of example, group; got site"),
        ("privacy.noise=0.9", "privacy.noise must be at least 1, got 0.9"),
        ("privacy.noise=0", "privacy.noise must be at least 1, got 0"),
        ("privacy.delta=2e-5", "privacy.delta must be at most 1e-05, got 2e-05"),
    ],
)
def test_an_order_that_promises_less_than_the_owner_requires_is_refused(
    change: str, why: str, liar: LyingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At hello, and where only the message to train or to test says so; the site does not train for it."""
    assert liar.refusal("query") == ""
    monkeypatch.setattr("fedotp.federation.clients.Clients.train", lambda *_: pytest.fail("the site trained"))
    for kind in ("query", "train", "evaluate"):
        assert liar.refusal(kind, change).endswith(why)
    assert not ledger_of(liar).exists()


def test_new_names_of_runs_buy_no_new_budget(liar: LyingServer) -> None:
    """Each with other noise and another sampling rate; the account is the accountant's of all of them together."""
    orders = [("privacy.noise=2",), ("privacy.noise=1", "federation.batch_size=2"), ("privacy.noise=1.5",)]
    obeyed, why = 0, ""
    while not why and obeyed < 50:
        changes = orders[obeyed % len(orders)]
        why = liar.refusal("train", *changes, run=f"{obeyed:032x}")
        obeyed += not why
    assert 3 <= obeyed < 50
    spent = oracle(ledger_of(liar))
    assert BUDGET / 2 < spent <= BUDGET
    assert f"has spent epsilon {spent:.3g} in all runs" in why
    assert f"more than {BUDGET:g}" in why
    assert len(ledger_of(liar).read_text().splitlines()) == obeyed
    assert liar.refusal("query", *changes, run="f" * 32) == why  # a run that no round fits in is refused at once
    assert liar.refusal("evaluate", *orders[0], run="0" * 32) == ""  # tests spend nothing


def test_the_ledger_is_the_sites_whatever_becomes_of_its_images(inputs: Path, tmp_path: Path) -> None:
    """The folder renamed, and images added, after one update: the next one counts on top of it."""
    data = shutil.copytree(inputs / "data", tmp_path / "images")
    site = {"data": str(data), "name": "north", "state": str(tmp_path / "state"), **WARY}
    site["backbone"] = str(inputs / "tiny.safetensors")
    one = LyingServer(site, private(inputs))
    assert one.refusal("train") == ""
    renamed = data.rename(tmp_path / "scans")
    some = next(renamed.rglob("*.png"))
    shutil.copy(some, some.with_name("copy.png"))
    other = LyingServer({**site, "data": str(renamed)}, private(inputs))
    assert other.refusal("train", run="b" * 32) == ""
    first, second = map(json.loads, ledger_of(one).read_text().splitlines())
    assert first["rate"] > second["rate"]
    total = f"{oracle(ledger_of(one)):.3g}"
    assert f"has spent epsilon {total} in all runs" in other.refusal("train", "federation.local_epochs=99")


def test_what_learned_without_noise_is_not_used_for_what_is_sent(liar: LyingServer) -> None:
    """A prompt that stays learns without noise; the same run is then ordered to treat it as if it were covered."""
    assert liar.refusal("train", "privacy.private=false") == ""
    for kind in ("train", "evaluate"):
        why = liar.refusal(kind, "privacy.private=true", **{wire.ACCEPTED: 1, wire.ROUND: 2})
        assert why == "the settings in [privacy] differ from those at the start of the run"
    scores = liar.order("evaluate", "privacy.private=false", **{wire.ACCEPTED: 1})
    assert dict(scores.metric_records[wire.METRICS]) == {wire.EXAMPLES: 0}


def test_a_server_does_not_see_that_what_stays_has_diverged(liar: LyingServer) -> None:
    """Noise does not cover it: an error in its place would be something of the images."""
    uncovered = "privacy.private=false"
    file = Path(liar.site["state"]) / ("a" * 32) / "private.safetensors"
    endless = {name: value / 0.0 for name, value in liar.config.method.private(liar.task).items()}
    PrivateFile(file, liar.config.override([uncovered]).privacy).keep(1, endless)
    for kind in ("train", "evaluate"):
        assert liar.refusal(kind, uncovered, **{wire.ACCEPTED: 1, wire.ROUND: 2}) == ""


def test_updates_without_noise_count_once_privacy_is_required(inputs: Path, tmp_path: Path) -> None:
    trusting = LyingServer(parts(tmp_path, 1)[100], make_deployable(inputs))
    assert trusting.refusal("train") == ""
    wary = LyingServer(parts(tmp_path, 1, **WARY)[100], private(inputs))
    assert "has spent epsilon inf in all runs" in wary.refusal("query", run="b" * 32)


def test_a_group_that_is_hidden_does_not_hide_an_image_for_the_same_price(tmp_path: Path) -> None:
    """Without one of its images a group's clipped gradient may be twice the clip away."""
    path = tmp_path / "releases.jsonl"
    line = {"run": "a", "round": 1, "noise": 4.0, "rate": 0.5, "steps": 10}
    path.write_text("".join(json.dumps({**line, "unit": unit}) + "\n" for unit in ("example", "group")))
    accountant = rdp.RdpAccountant().compose(PoissonSampledDpEvent(0.5, GaussianDpEvent(4.0)), 10)
    accountant.compose(GaussianDpEvent(2.0), 10)
    image, patient = (
        Ledger(path, "b", Settings(), 100, Policy(epsilon=8.0, unit=unit)).total() for unit in ("example", "group")
    )
    assert image == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)
    assert patient == math.inf  # of the images' own noise no patient is hidden
    agreement = Agreement("a" * 32, Config.preset("demo").override(["privacy.unit=example"]), (), "", "")
    with pytest.raises(FedotpError, match=r"privacy\.delta must be at most 2e-06"):
        Policy(epsilon=8.0).require(agreement, n_images=500_000)


def test_a_ledger_survives_a_kill_and_a_damaged_one_is_refused(
    liar: LyingServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the update is made and has not left: it is paid for."""
    with monkeypatch.context() as patch:
        patch.setattr("fedotp.flower.site._site._Work.keep", lambda *_: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            liar.order("train")
    whole = ledger_of(liar).read_bytes()
    assert whole.count(b"\n") == 1
    ledger_of(liar).write_bytes(whole + b'{"run": "aa')  # a kill in the middle of a line: that update did not leave
    assert liar.refusal("train", run="b" * 32) == ""
    assert ledger_of(liar).read_bytes().count(b"\n") == 2
    for field, value in (("steps", -5), ("noise", math.inf), ("rate", 0), ("unit", "patient"), ("run", 3)):
        ledger_of(liar).write_text(json.dumps({**json.loads(whole), field: value}) + "\n")
        caplog.clear()
        assert liar.refusal("train", run="c" * 32) == "internal error; see the site's log"
        assert "releases.jsonl is corrupt" in caplog.text


def test_an_honest_run_within_what_is_required_is_obeyed(inputs: Path, tmp_path: Path) -> None:
    run = NearGrid(parts(tmp_path, 3, **WARY)).serve(private(inputs), tmp_path / "run")
    assert answered(run) == [[0, 1, 2], [0, 1, 2]]
    assert not any(record.get("faults") for record in run.metrics("round"))
    for name, spent in run.summary["privacy"]["clients"].items():
        assert spent == pytest.approx(oracle(tmp_path / name / "releases.jsonl"), rel=1e-9)


@pytest.mark.processes
def test_a_real_site_refuses_a_real_server_that_orders_less(inputs: Path, tmp_path: Path) -> None:
    """Processes, keys and TLS: what the owner requires on the command line is what the site holds the server to."""
    port = make_study(tmp_path, make_deployable(inputs), ["north"])
    with processes(tmp_path) as started:
        started.start_server(port)
        (tmp_path / "policy.toml").write_text("epsilon = 8\n")
        started.start_site(0, "north", port, "--policy", "policy.toml")
        assert started.wait("server") == 2, started.all_logs()
        why = "policy: privacy.unit must be one of example, group; got none"
        assert f"site north was refused: {why}" in started.log("server")
        assert f"request refused: {why}" in started.log("north")
    assert not (tmp_path / "run").exists()
