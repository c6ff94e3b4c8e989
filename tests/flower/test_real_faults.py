"""Real processes that are killed or lie: the run goes on with those who are there, and says what happened."""

import json
from pathlib import Path

import pytest
import torch
from near_sites import make_deployable
from real_processes import processes, rounds_done

from fedotp.federation import Checkpoint
from fedotp.flower.keys import make_keys
from fedotp.flower.link._superlink import free_port
from fedotp.runs.directory import RunDirectory

LIAR = """
import torch
from fedotp.flower.site._site import Site
honest = Site.train
def poisoned(self, *order):
    done = honest(self, *order)
    for value in done.update.values():
        value.fill_(torch.nan)
    return done
Site.train = poisoned
from fedotp.cli import main
main()
"""


@pytest.mark.processes
def test_killed_sites_a_killed_server_and_a_poisoned_update(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs, federation={"rounds": 6})
    (tmp_path / "study.toml").write_text(config.to_toml())
    make_keys(tmp_path / "keys", ["localhost"], ["north", "east", "liar"])
    run, port = tmp_path / "run", free_port()
    settings = ["--keys", "keys/server", "--host", "127.0.0.1", "--port", port, "--round-timeout", 20]

    with processes(tmp_path) as started:

        def site(part: int, name: str, **how: str) -> None:
            where = ["--server", f"localhost:{port}", "--state", f"state/{name}"]
            started.start(name, "client", "--part", part, "--keys", f"keys/sites/{name}", *where, **how)

        started.start("server", "server", "study.toml", "--out", "run", *settings)
        site(0, "north")
        site(1, "east")
        site(2, "liar", code=LIAR)
        started.until(lambda: rounds_done(run) >= 1)
        started.kill("east")
        started.until(lambda: any(_missing(record, "east") for record in _rounds(run)))
        site(1, "east")
        started.kill("server")
        done = rounds_done(run)
        started.start("server", "server", "--resume", "run", *settings)
        assert started.wait("server") == 0, started.all_logs()
    summary = RunDirectory.open(run).summary
    rounds = _rounds(run)
    assert [record["round"] for record in rounds] == [1, 2, 3, 4, 5, 6]
    assert done < 6
    assert all(2 not in record["answered"] for record in rounds)
    refused = [record.get("faults", {}).get("liar", "") for record in rounds]
    assert sum("shared has values that are not finite" in why for why in refused) >= 2
    assert summary["faults"]["liar"] == sum(bool(why) for why in refused)
    assert 1 in rounds[-1]["answered"], "the site that was killed is back"
    assert all(torch.isfinite(value).all() for value in Checkpoint.read(RunDirectory(run).checkpoint).server.values())
    assert "its update is refused: shared has values that are not finite" in started.log("server")
    assert "resuming after round" in started.log("server")


def _rounds(run: Path) -> list[dict]:
    try:
        return list(RunDirectory(run).metrics("round"))
    except (OSError, json.JSONDecodeError):
        return []


def _missing(record: dict, name: str) -> bool:
    return name in record.get("faults", {})
