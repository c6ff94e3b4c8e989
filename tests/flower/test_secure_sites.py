"""Secure sums with sites in this process: the plain federation's numbers, and an update nobody else can find."""

from pathlib import Path

import torch
from near_sites import NearGrid, make_deployable, named, parts

from fedotp.federation import load_server
from fedotp.flower.server._serve import serve
from fedotp.flower.server._settings import ServerSettings

SECURE = ServerSettings(secure=True)


def test_the_result_is_that_of_the_plain_federation(inputs: Path, tmp_path: Path) -> None:
    config = make_deployable(inputs)
    runs = {}
    for name, settings in (("plain", ServerSettings()), ("secure", SECURE)):
        grid = NearGrid(parts(tmp_path / name, 3))
        runs[name] = serve(grid, config, settings, tmp_path / name / "run", **named(grid))
    plain, secure = (load_server(run.checkpoint) for run in runs.values())
    for name in plain:
        torch.testing.assert_close(secure[name], plain[name], atol=1e-6, rtol=0)
    assert runs["secure"].summary["secure"] == {"threshold": 2 / 3, "range": 64, "sums": 2, "void": 0}
