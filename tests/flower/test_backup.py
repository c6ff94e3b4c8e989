"""Copies of a running federation, restored after server and sites were lost."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from near_sites import make_deployable, with_keys
from real_processes import make_study, processes, rounds_done

from fedotp.errors import FedotpError
from fedotp.federation import RoundReport
from fedotp.flower.records import check_logs
from fedotp.flower.server import verify_run
from fedotp.flower.server._deployed import Deployed
from fedotp.runs.directory import RunDirectory

SITES = ("north", "east", "west")
PAUSED = """
import time
from pathlib import Path
from fedotp.flower.site._site import Site
honest = Site.train
def paused(self, agreement, number, round_, *order):
    while round_ == 3 and not Path("go").exists():
        time.sleep(0.2)
    return honest(self, agreement, number, round_, *order)
Site.train = paused
from fedotp.cli import main
main()
"""


@pytest.mark.processes
def test_a_copy_made_during_a_round_brings_server_and_sites_back(inputs: Path, tmp_path: Path) -> None:
    """All files are copied while all sites train; later all processes are killed, and all files deleted."""
    port = make_study(tmp_path, make_deployable(inputs, federation={"rounds": 5}), SITES)
    run, copy = tmp_path / "run", tmp_path / "copy"
    logs = [tmp_path / "state" / site / "security.jsonl" for site in SITES]
    files = ("run", "run.security.jsonl", ".run.security.jsonl.head", "state", "keys")
    with processes(tmp_path) as started:

        def start_sites() -> None:
            for part, site in enumerate(SITES):
                started.start_site(part, site, port, code=PAUSED)

        started.start_server(port)
        start_sites()
        started.until(lambda: all(rounds_begun(log) == 3 for log in logs))
        copy.mkdir()
        subprocess.run(["cp", "-a", *files, copy], cwd=tmp_path, check=True)
        (tmp_path / "go").touch()
        started.until(lambda: rounds_done(run) >= 3)
        for name in ("server", *SITES):
            started.kill(name)
        for name in files:
            shutil.rmtree(tmp_path / name) if (tmp_path / name).is_dir() else (tmp_path / name).unlink()
        assert verify_run(copy / "run").wrong == []
        subprocess.run(["cp", "-a", *(copy / name for name in files), tmp_path], check=True)
        where = ["--keys", "keys/server", "--host", "127.0.0.1", "--port", port]
        started.start("server", "server", "--resume", "run", *where)
        start_sites()
        assert started.wait("server") == 0, started.all_logs()
        assert "resuming after round 2" in started.log("server")
    finished = RunDirectory.open(run)
    assert [line["answered"] for line in finished.metrics("round")] == [[0, 1, 2]] * 5
    found = verify_run(run, list(tmp_path.glob("state/*/transcripts/*.jsonl")))
    assert (found.wrong, found.repeated, found.sites) == ([], 5, set(SITES))
    for log in (tmp_path / "run.security.jsonl", *logs):
        assert check_logs([log]).wrong == [], log


def rounds_begun(log: Path) -> int:
    """The last round in which a site was ordered to train."""
    events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return max((int(event["round"]) for event in events if event.get("kind") == "train"), default=0)


@pytest.mark.parametrize("first", ["state", "metrics.jsonl"])
def test_a_copy_of_a_run_that_goes_on_meanwhile_is_whole_or_refused(
    first: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that are newer than the checkpoint are discarded; a checkpoint newer than the lines is refused.

    A slow backup of a quick run: after each round one file is copied, `first` first, the others by name.
    """
    run, copy = tmp_path / "run", tmp_path / "copy"

    def copy_one(self: Deployed, report: RoundReport) -> None:
        left = [path.relative_to(run) for path in run.rglob("*") if path.is_file() and path.name != "lock"]
        left = [path for path in left if not (copy / path).exists()]
        if report.round >= 3 and left:
            path = min(left, key=lambda path: (path.parts[0] != first, path))
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(run / path, copy / path)

    grid, keys = with_keys(tmp_path, 3)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(Deployed, "on_round", copy_one)
        grid.serve(make_deployable(inputs, federation={"rounds": 12}), run, public_keys=keys)
    if first != "state":
        with pytest.raises(FedotpError, match=r"metrics.jsonl is truncated: .*; restore it from a backup"):
            grid.resume(copy)
        return
    resumed = grid.resume(copy, public_keys=keys)
    assert [line["answered"] for line in resumed.metrics("round")] == [[0, 1, 2]] * 12
    assert verify_run(resumed.path).wrong == []
