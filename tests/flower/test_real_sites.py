"""Real processes on the loopback interface, with TLS and node keys: they agree with the simulator, die, and lie."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from holdings import folder_bytes, n_found, process_bytes, sent_in
from near_sites import NearGrid, assert_same_server, make_deployable, parts
from real_processes import make_study, processes, rounds_done, training
from recorder import recording

import fedotp
from anchored import Anchored
from fedotp.federation import Checkpoint
from fedotp.flower.keys import ServerKeys, make_keys, request_key, sign_request
from fedotp.flower.link._superlink import free_port
from fedotp.flower.secure._fixed_point import FixedPoint
from fedotp.flower.server import ServerSettings, verify_run
from fedotp.flower.site._state import PrivateFile
from fedotp.runs.directory import RunDirectory
from stranger import NAME, write_method

SITES = ("north", "east", "west")


def test_three_sites_end_with_the_simulators_prompt_and_nothing_private_is_heard(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs)
    expected = Checkpoint.read(fedotp.run(config, tmp_path / "simulated").checkpoint).server
    port = make_study(tmp_path, config, SITES)
    stranger, signed = tmp_path / "stranger", tmp_path / "signed"  # of which the server is not informed
    shutil.copytree(tmp_path / "keys", signed)
    sign_request(signed, request_key("stranger", stranger)[0])
    shutil.copytree(signed / "sites/stranger", stranger, dirs_exist_ok=True)
    with recording(ServerKeys.read(tmp_path / "keys/server"), port) as recorder, processes(tmp_path) as started:
        started.start_server(port)
        for part, site in enumerate(SITES):
            started.start_site(part, site, recorder.port)
        unknown = ["--server", f"localhost:{port}", "--part", 0]
        started.start("stranger", "client", "--keys", stranger, "--state", "state/stranger", *unknown)
        assert started.wait("server") == 0, started.all_logs()
        assert started.wait("stranger") == 2, started.all_logs()
        assert "key is not registered at the server" in started.log("stranger")
        heard = recorder.heard
    run = RunDirectory.open(tmp_path / "run")
    found = Checkpoint.read(run.checkpoint).server
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert run.summary["faults"] == {}
    assert [client["name"] for client in run.summary["clients"]] == list(SITES)
    near = NearGrid(parts(tmp_path / "near", 3))
    near.serve(config, tmp_path / "near/run")
    for sent in sent_in(near):  # what travels is found, as the search for what does not travel requires
        assert all(_is_said(vector, heard) for vector in _vectors(sent.start["shared"]))
        assert n_found(sent.patterns(FixedPoint(3, 11, 64)), heard)
    for site in SITES:
        (path,) = (tmp_path / "state" / site).glob("*/private.safetensors")
        private = PrivateFile(path)
        assert private.rounds == [1, 2]
        for number in private.rounds:
            kept = private.after(number)
            assert kept is not None
            assert not any(_is_said(vector, heard) for vector in _vectors(kept["private"]))


def _vectors(prompt: torch.Tensor) -> list[bytes]:
    """Half of each context vector, as it lies in memory: enough to be unique, short enough not to be cut."""
    return [row[: len(row) // 2].numpy().tobytes() for row in prompt.flatten(0, -2)]


def _is_said(vector: bytes, heard: list[bytes]) -> bool:
    return any(vector in part for part in heard)


@pytest.mark.processes
def test_a_site_that_does_not_trust_the_server_does_not_connect(inputs: Path, tmp_path: Path) -> None:
    """And the server, which goes on waiting, can be stopped."""
    port = make_study(tmp_path, make_deployable(inputs), ["north"])
    make_keys(tmp_path / "others", ["localhost"], ["north"])
    with processes(tmp_path) as started:
        started.start_server(port)
        where = ["--server", f"localhost:{port}", "--state", "state"]
        started.start("north", "client", "--part", 0, "--keys", "others/sites/north", *where)
        assert started.wait("north") == 2, started.all_logs()
        assert "certificate is not signed by this site's authority" in started.log("north")
        started.stop_waiting("server", signal.SIGTERM)
    assert not (tmp_path / "run").exists()


# Killed processes and a poisoned update ------------------------------------------------------------------------------


LIAR = training(
    "done = honest(self, agreement, number, round_, *rest)",
    "for value in done.update.values(): value.fill_(float('nan'))",
)


@pytest.mark.processes
def test_killed_sites_a_killed_server_and_a_poisoned_update(inputs: Path, tmp_path: Path) -> None:
    port = make_study(tmp_path, make_deployable(inputs, federation={"rounds": 6}), ["north", "east", "liar"])
    run = tmp_path / "run"
    with processes(tmp_path) as started:
        started.start_server(port, "--round-timeout", 20)
        started.start_site(0, "north", port)
        started.start_site(1, "east", port)
        started.start_site(2, "liar", port, code=LIAR)
        started.until(lambda: rounds_done(run) >= 1)
        started.kill("east")
        started.until(lambda: any(_missing(record, "east") for record in _rounds(run)))
        started.start_site(1, "east", port)
        started.kill("server")
        done = rounds_done(run)
        again = ["--keys", "keys/server", "--host", "127.0.0.1", "--port", port, "--round-timeout", 20]
        started.start("server", "server", "--resume", "run", *again)
        assert started.wait("server") == 0, started.all_logs()
    summary = RunDirectory.open(run).summary
    rounds = _rounds(run)
    assert [record["round"] for record in rounds] == [1, 2, 3, 4, 5, 6]
    assert done < 6
    assert all(2 not in record["answered"] for record in rounds)
    refused = [record.get("faults", {}).get("liar", "") for record in rounds]
    assert sum("shared contains non-finite values" in why for why in refused) >= 2
    assert summary["faults"]["liar"] == sum(bool(why) for why in refused)
    assert 1 in rounds[-1]["answered"], "the site that was killed is back"
    found = verify_run(run, sorted(tmp_path.glob("state/*/transcripts/*.jsonl")))
    assert (found.wrong, found.repeated, found.sites) == ([], 6, {"north", "east"})
    assert all(torch.isfinite(value).all() for value in Checkpoint.read(RunDirectory(run).checkpoint).server.values())
    assert "its update is refused: shared contains non-finite values" in started.log("server")
    assert "resuming after round" in started.log("server")


def _rounds(run: Path) -> list[dict]:
    try:
        return list(RunDirectory(run).metrics("round"))
    except (OSError, json.JSONDecodeError):
        return []


def _missing(record: dict, name: str) -> bool:
    return name in record.get("faults", {})


# Secure sums ---------------------------------------------------------------------------------------------------------


FOUR = ("north", "east", "west", "south")
DYING = training(
    "import os, signal",
    "if round_ == 2: os.kill(os.getpid(), signal.SIGKILL)  # it has dealt out its shares",
    "done = honest(self, agreement, number, round_, *rest)",
)
LYING = """
from dataclasses import replace
from fedotp.flower.server import _secure_rounds
from fedotp.flower.server._requests import Requests
_secure_rounds._MOST_VOID = 1
honest = Requests._order
def lying(self, member, kind, told, round_, server):
    agreement = self._registration.agreement
    if kind == "train" and member.name != "west":  # what they add is then the prompt that they received
        still = agreement.config.override(["optimizer.lr=1e-12", "optimizer.weight_decay=0"])
        self._registration.agreement = replace(agreement, config=still)
    try:
        return honest(self, member, kind, told, round_, server)
    finally:
        self._registration.agreement = agreement
Requests._order = lying
from fedotp.cli import main
main()
"""


@pytest.mark.processes
def test_a_server_that_orders_all_sites_but_one_to_stand_still_opens_nothing(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs).override(["partition.n_clients=4"])
    port = make_study(tmp_path, config, FOUR)
    (tmp_path / "policy.toml").write_text("secure_sums = true\n")
    with processes(tmp_path) as started:
        started.start_server(port, "--secure", "--patience", 0, code=LYING)
        for part, site in enumerate(FOUR):
            started.start_site(part, site, port, "--policy", "policy.toml")
        assert started.wait("server") != 0
        assert "round 1: secure sum failed 1 times in a row: only 1 of 4 sites sent" in started.log("server")
        for site in FOUR:
            refused = "refused: the server requested a secure sum that does not match the" in started.log(site)
            assert refused == (site != "west"), started.all_logs()


@pytest.mark.processes
def test_a_site_is_killed_in_a_round_and_no_byte_the_server_holds_is_of_an_update(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs).override(["partition.n_clients=4"])
    near = NearGrid(parts(tmp_path / "near", 4))
    near.meddle[103] = lambda message, reply: reply if _arrives(message.metadata) else None
    plain = near.serve(config, tmp_path / "near/run", ServerSettings(round_timeout=0.2, patience=0))
    run, port = tmp_path / "run", make_study(tmp_path, config, FOUR)
    (tmp_path / "policy.toml").write_text("secure_sums = true\n")
    with recording(ServerKeys.read(tmp_path / "keys/server"), port) as recorder, processes(tmp_path) as started:
        started.start_server(port, "--secure", "--round-timeout", 15, "--patience", 0)
        for part, site in enumerate(FOUR):
            code = {"code": DYING} if site == "south" else {}
            started.start_site(part, site, recorder.port, "--policy", "policy.toml", **code)
        started.until(lambda: rounds_done(run) == 1)
        memory = process_bytes(started.running["server"].pid)
        assert started.wait("server") == 0, started.all_logs()
        heard = recorder.heard
    assert [record["answered"] for record in RunDirectory.open(run).metrics("round")] == [[0, 1, 2, 3], [0, 1, 2]]
    assert_same_server(RunDirectory.open(run), plain, atol=1e-6)
    held = [*heard, *folder_bytes(run), started.log_path("server").read_bytes()]
    updates = sent_in(near)
    average = next(update.start["shared"] for update in updates if update.round == 2)
    known = [row[: len(row) // 2].numpy().tobytes() for row in average.flatten(0, -2)]
    for place in (heard, memory):
        assert n_found(known, place)  # what the server may know is found; a sum of masks may round otherwise
    fixed = FixedPoint(4, max(update.weight for update in updates), 64)
    assert [n_found(update.patterns(fixed), held) for update in updates] == [0] * 8
    assert [n_found(update.patterns(fixed), memory) for update in updates if update.round == 1] == [0] * 4


def _arrives(metadata: object) -> bool:
    return not (metadata.message_type == "train" and metadata.group_id == "2")  # type: ignore[attr-defined]


# A method of the user's own: no code travels -------------------------------------------------------------------------


@pytest.mark.processes
def test_the_server_and_each_site_import_their_own_copy(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs).override([f"method.name={Anchored.name}", "partition.n_clients=2"])
    expected = Checkpoint.read(fedotp.run(config, tmp_path / "simulated").checkpoint).server
    (tmp_path / "study.toml").write_text(config.to_toml().replace(Anchored.name, NAME))
    for place in ("server", "north", "east"):
        (tmp_path / f"at-{place}").mkdir()
        write_method(tmp_path / f"at-{place}")
    port = free_port()
    with processes(tmp_path) as started:
        named = ["--import", f"at-server/{NAME}.py"]
        listen = ["--host", "127.0.0.1", "--port", port, "--insecure", "--min-sites", 2]
        started.start("server", "server", "study.toml", "--out", "run", *listen, *named)
        started.until(lambda: "listening" in started.log("server"))
        where = ["--server", f"127.0.0.1:{port}", "--insecure"]
        started.start("alone", "client", "--part", 0, "--name", "alone", "--state", "state/alone", *where)
        for part, site in enumerate(("north", "east")):
            own = ["--part", part, "--name", site, "--state", f"state/{site}", "--import", f"at-{site}/{NAME}.py"]
            started.start(site, "client", *own, *where)
        assert started.wait("server") == 0, started.all_logs()
        assert f'method.name = "{NAME}": must be' in started.log("alone"), started.all_logs()
        assert "one of your own with --import FILE.py" in started.log("alone")
    run = RunDirectory(tmp_path / "run")
    assert run.manifest["method"]["origin"]["file"] == str(tmp_path / f"at-server/{NAME}.py")
    found = Checkpoint.read(run.checkpoint).server
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


# Flower's simulation engine drives the same app ----------------------------------------------------------------------


@pytest.mark.processes
def test_flowers_virtual_sites_end_with_the_simulators_prompt(inputs: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from plain_flower import plain_flower

    config = make_deployable(inputs)
    (tmp_path / "study.toml").write_text(config.to_toml())
    simulated = fedotp.run(config, tmp_path / "simulated")
    with plain_flower(tmp_path / "flower", simulated=3) as flower:
        flower.run(tmp_path / "study.toml", tmp_path / "run")
    run = RunDirectory.open(tmp_path / "run")
    assert run.manifest["clients"] == ["client-0", "client-1", "client-2"]
    assert_same_server(run, simulated, atol=1e-6)
    assert run.summary["final"]["accuracy"] == pytest.approx(simulated.summary["final"]["accuracy"])
