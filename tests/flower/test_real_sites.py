"""A real SuperLink and real SuperNodes on the loopback interface, with TLS and node keys."""

import signal
from pathlib import Path

import pytest
import torch
from holdings import n_found, sent_in
from near_sites import NearGrid, make_deployable, named, parts
from real_processes import processes
from recorder import recording

import fedotp
from fedotp.federation import Checkpoint
from fedotp.flower.keys import ServerKeys, make_keys
from fedotp.flower.link._superlink import free_port
from fedotp.flower.secure._fixed_point import FixedPoint
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._serve import serve
from fedotp.flower.site._state import PrivateFile
from fedotp.runs.directory import RunDirectory

SITES = ("north", "east", "west")


def test_three_sites_end_with_the_simulators_prompt_and_nothing_private_is_heard(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs)
    (tmp_path / "study.toml").write_text(config.to_toml())
    expected = Checkpoint.read(fedotp.run(config, tmp_path / "simulated").checkpoint).server
    make_keys(tmp_path / "keys", ["localhost"], SITES)
    make_keys(tmp_path / "others", ["localhost"], ["stranger"])
    stranger = tmp_path / "stranger"
    (tmp_path / "others/sites/stranger").rename(stranger)
    (stranger / "ca.crt").write_bytes((tmp_path / "keys/server/ca.crt").read_bytes())  # trusts, and is not trusted
    port = free_port()
    with recording(ServerKeys.read(tmp_path / "keys/server"), port) as recorder, processes(tmp_path) as started:
        listen = ["--host", "127.0.0.1", "--port", port]
        started.start("server", "server", "study.toml", "--keys", "keys/server", "--out", "run", *listen)
        started.until(lambda: "listening" in started.log("server"))
        for part, site in enumerate(SITES):
            where = ["--server", f"localhost:{recorder.port}", "--state", f"state/{site}"]
            started.start(site, "client", "--part", part, "--keys", f"keys/sites/{site}", *where)
        unknown = ["--server", f"localhost:{port}", "--part", 0]
        started.start("stranger", "client", "--keys", stranger, "--state", "state/stranger", *unknown)
        assert started.wait("server") == 0, started.all_logs()
        assert started.wait("stranger") == 2, started.all_logs()
        assert "does not know this site's key" in started.log("stranger")
        heard = recorder.heard
    run = RunDirectory.open(tmp_path / "run")
    found = Checkpoint.read(run.checkpoint).server
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], atol=1e-6, rtol=0)
    assert run.summary["faults"] == {}
    assert [client["name"] for client in run.summary["clients"]] == list(SITES)
    assert all(_is_said(vector, heard) for vector in _vectors(_prompt_before_last(config, tmp_path)))
    near = NearGrid(parts(tmp_path / "near", 3))
    serve(near, config, ServerSettings(), tmp_path / "near/run", **named(near))
    assert all(n_found(sent.patterns(FixedPoint(3, 11, 64)), heard) for sent in sent_in(near))
    for site in SITES:
        (path,) = (tmp_path / "state" / site).glob("*/private.safetensors")
        private = PrivateFile(path)
        assert private.rounds == [1, 2]
        for number in private.rounds:
            kept = private.after(number)
            assert kept is not None
            assert not any(_is_said(vector, heard) for vector in _vectors(kept["private"]))


def _prompt_before_last(config: fedotp.Config, folder: Path) -> torch.Tensor:
    """The shared prompt that the server sent in the second round."""
    once = fedotp.run(config.override(["federation.rounds=1"]), folder / "once")
    return Checkpoint.read(once.checkpoint).server["shared"]


def _vectors(prompt: torch.Tensor) -> list[bytes]:
    """Half of each context vector, as it lies in memory: enough to be unique, short enough not to be cut."""
    return [row[: len(row) // 2].numpy().tobytes() for row in prompt.flatten(0, -2)]


def _is_said(vector: bytes, heard: list[bytes]) -> bool:
    return any(vector in part for part in heard)


@pytest.mark.processes
def test_a_site_that_does_not_trust_the_server_does_not_connect(inputs: Path, tmp_path: Path) -> None:
    """And the server, which goes on waiting, can be stopped."""
    (tmp_path / "study.toml").write_text(make_deployable(inputs).to_toml())
    make_keys(tmp_path / "keys", ["localhost"], ["north"])
    make_keys(tmp_path / "others", ["localhost"], ["north"])
    port = free_port()
    with processes(tmp_path) as started:
        listen = ["--host", "127.0.0.1", "--port", port]
        started.start("server", "server", "study.toml", "--keys", "keys/server", "--out", "run", *listen)
        started.until(lambda: "listening" in started.log("server"))
        where = ["--server", f"localhost:{port}", "--state", "state"]
        started.start("north", "client", "--part", 0, "--keys", "others/sites/north", *where)
        assert started.wait("north") == 2, started.all_logs()
        assert "certificate was not made by the authority" in started.log("north")
        started.stop_waiting("server", signal.SIGTERM)
    assert not (tmp_path / "run").exists()
