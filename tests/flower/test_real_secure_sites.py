"""Secure sums over TLS with real processes: a site is killed in the middle of a round; a server lies.

What the same search finds where sums are not secure: `test_real_sites.py`.
"""

from pathlib import Path

import pytest
import torch
from holdings import folder_bytes, n_found, process_bytes, sent_in
from near_sites import NearGrid, make_deployable, named, parts
from real_processes import processes, rounds_done
from recorder import recording

from fedotp.federation import Checkpoint
from fedotp.flower.keys import ServerKeys, make_keys
from fedotp.flower.link._superlink import free_port
from fedotp.flower.secure._fixed_point import FixedPoint
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._serve import serve
from fedotp.runs.directory import RunDirectory

SITES = ("north", "east", "west", "south")
DYING = """
import os, signal
from fedotp.flower.site._site import Site
honest = Site.train
def dying(self, agreement, number, round_, *rest):
    if round_ == 2:  # it has dealt out its shares
        os.kill(os.getpid(), signal.SIGKILL)
    return honest(self, agreement, number, round_, *rest)
Site.train = dying
from fedotp.cli import main
main()
"""
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
    (tmp_path / "study.toml").write_text(config.to_toml())
    make_keys(tmp_path / "keys", ["localhost"], SITES)
    port = free_port()
    with processes(tmp_path) as started:
        how = ["--secure", "--host", "127.0.0.1", "--port", port, "--patience", 0]
        started.start("server", "server", "study.toml", "--keys", "keys/server", "--out", "run", *how, code=LYING)
        started.until(lambda: "listening" in started.log("server"))
        for part, site in enumerate(SITES):
            where = ["--server", f"localhost:{port}", "--state", f"state/{site}", "--require-secure"]
            started.start(site, "client", "--part", part, "--keys", f"keys/sites/{site}", *where)
        assert started.wait("server") != 0
        assert "round 1 was void 1 times in a row: 1 of 4 sites have sent masked numbers" in started.log("server")
        for site in SITES:
            refused = "refused: the server asks for a secure sum of another agreement" in started.log(site)
            assert refused == (site != "west"), started.all_logs()


@pytest.mark.processes
def test_a_site_is_killed_in_a_round_and_no_byte_the_server_holds_is_of_an_update(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs).override(["partition.n_clients=4"])
    (tmp_path / "study.toml").write_text(config.to_toml())
    near = NearGrid(parts(tmp_path / "near", 4))
    near.meddle[103] = lambda message, reply: reply if _arrives(message.metadata) else None
    plain = serve(near, config, ServerSettings(round_timeout=0.2, patience=0), tmp_path / "near/run", **named(near))
    make_keys(tmp_path / "keys", ["localhost"], SITES)
    run, port = tmp_path / "run", free_port()
    with recording(ServerKeys.read(tmp_path / "keys/server"), port) as recorder, processes(tmp_path) as started:
        how = ["--secure", "--host", "127.0.0.1", "--port", port, "--round-timeout", 15, "--patience", 0]
        started.start("server", "server", "study.toml", "--keys", "keys/server", "--out", "run", *how)
        started.until(lambda: "listening" in started.log("server"))
        for part, site in enumerate(SITES):
            where = ["--server", f"localhost:{recorder.port}", "--state", f"state/{site}", "--require-secure"]
            code = {"code": DYING} if site == "south" else {}
            started.start(site, "client", "--part", part, "--keys", f"keys/sites/{site}", *where, **code)
        started.until(lambda: rounds_done(run) == 1)
        memory = process_bytes(started.running["server"].pid)
        assert started.wait("server") == 0, started.all_logs()
        heard = recorder.heard
    assert [record["answered"] for record in RunDirectory.open(run).metrics("round")] == [[0, 1, 2, 3], [0, 1, 2]]
    expected, found = (
        Checkpoint.read(plain.checkpoint).server,
        Checkpoint.read(RunDirectory.open(run).checkpoint).server,
    )
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
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
