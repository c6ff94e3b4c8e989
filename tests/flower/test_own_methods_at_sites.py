"""A stranger's method at real sites: server and sites are each told where it is, and no code travels."""

from pathlib import Path

import pytest
import torch
from near_sites import make_deployable
from real_processes import processes

import fedotp
from anchored import Anchored
from fedotp.federation import Checkpoint
from fedotp.flower.link._superlink import free_port
from fedotp.runs.directory import RunDirectory
from stranger import NAME, write_method


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
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], atol=1e-6, rtol=0)
