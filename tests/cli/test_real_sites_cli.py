"""The commands on runs, given the run directory that a server of real sites leaves."""

import json
import shutil
from pathlib import Path

import pytest
from cli_made import Fedotp

from fedotp.errors import FedotpError
from fedotp.runs.directory import RunDirectory


@pytest.fixture
def deployed(here: RunDirectory) -> RunDirectory:
    """Sites of which one reports its accuracy, `there`, beside the simulated run."""
    shutil.copytree(here.path, "there")
    run = RunDirectory.open("there")
    (run.path / "partition.json").unlink()
    (run.path / "predictions.npz").unlink()
    run.save_manifest({**run.manifest, "deployment": {"sites": 4, "train_images": {}}})
    run.save_summary({**run.summary, "clients": run.summary["clients"][:1]})
    return RunDirectory.open("there")


def test_every_site_is_shown_also_one_that_reports_nothing(deployed: RunDirectory, fedotp: Fedotp) -> None:
    shown = fedotp("runs", "show", "there").out
    assert "4 clients, 2 rounds" in shown
    first, *others = deployed.manifest["clients"]
    lines = {line.split()[0]: line for line in shown.splitlines() if line.split()[:1]}
    assert "%" not in lines[first]
    assert "reported no test results" not in lines[first]
    for name in others:
        assert lines[name].endswith("reported no test results")


def test_sites_that_report_nothing_at_all(deployed: RunDirectory, fedotp: Fedotp) -> None:
    path = deployed.path / "metrics.jsonl"
    lines = [line for line in path.read_text().splitlines(keepends=True) if json.loads(line)["kind"] == "round"]
    path.write_text("".join(lines))
    deployed.save_summary({**deployed.summary, "clients": [], "final": {}, "domains": {}})
    shown = fedotp("runs", "show", "there").out
    assert "no site reports its accuracy" in shown
    assert shown.count("reported no test results") == 4
    assert fedotp("runs", "list", ".").out.count("complete") == 2
    assert "no site has reported an evaluation" in fedotp("evaluate", "there").err
    drawn = fedotp("figures", "there", "--only", "curves")
    assert "there has no evaluation to draw" in drawn.err
    both = fedotp("figures", "there", "here", "--only", "curves,maps", "--images", "1")
    assert both.status == 0, both.err
    assert "no maps of there: its images are at the sites" in both.out


def test_a_server_goes_on_with_its_own_command(deployed: RunDirectory, fedotp: Fedotp) -> None:
    (deployed.path / "summary.json").unlink()
    right = "fedotp server --resume there --keys DIR"
    assert right in fedotp("runs", "show", "there").out
    refused = fedotp("run", "--resume", "there")
    assert refused.status == 2
    assert refused.err == f"error: there is a run of real sites; resume it with `{right}`\n"
    assert f"resume it with `{right}`" in fedotp("run", "tiny.toml", "--out", "there").err


@pytest.mark.parametrize(
    ("options", "expected"),
    [(["--insecure"], "127.0.0.1"), (["--insecure", "--host", "0.0.0.0"], "0.0.0.0"), (["--keys", "keys"], "0.0.0.0")],
)
def test_a_server_without_keys_listens_on_this_machine_only(
    options: list[str], expected: str, place: Path, fedotp: Fedotp, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr")
    asked: list[object] = []

    def listen(_settings: object, host: str, *_values: object, **_options: object) -> None:
        asked.append(host)
        raise FedotpError("not today")

    monkeypatch.setattr("fedotp.flower.server.run_server", listen)
    assert fedotp("server", "tiny.toml", *options).status == 2
    assert asked == [expected]
