"""The directory of a server's run, edited by somebody who took the seals off."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from near_sites import NearGrid, make_deployable, named, parts

from fedotp.errors import FedotpError
from fedotp.federation import RoundReport
from fedotp.flower.server import ServerSettings
from fedotp.flower.server._serve import resume_serving, serve
from fedotp.runs.directory import RunDirectory
from fedotp.runs.watch import Observer

QUICK = ServerSettings(round_timeout=5)


class _KilledError(Exception):
    """The server is killed."""


class _Deadly(Observer):
    def on_round(self, report: RoundReport) -> None:
        raise _KilledError


@pytest.fixture(scope="module")
def stopped(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged")
    grid = NearGrid(parts(folder, 2))
    with pytest.raises(_KilledError):
        serve(grid, make_deployable(inputs), QUICK, folder / "run", observer=_Deadly(), **named(grid))
    return folder / "run"


def _deployment(key: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest["deployment"].update({key: value})


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no deployment": lambda manifest: manifest.update(deployment=[]),
    "no settings": _deployment("settings", {}),
    "settings of another type": lambda manifest: manifest["deployment"]["settings"].update(secure_threshold={}),
    "fewer than no sites": _deployment("sites", -1),
    "more sites than names": _deployment("sites", 1 << 40),
    "images of another type": _deployment("train_images", {"site-0": "all"}),
    "a run without a name": _deployment("run", 7),
    "sites without names": lambda manifest: manifest.update(clients=[1, 2]),
    "classes without names": lambda manifest: manifest["data"].update(classes={"red": 1}),
    "no backbone": lambda manifest: manifest.update(backbone=None),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_manifest_is_refused_in_one_line(case: str, stopped: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(stopped, run)
    manifest = RunDirectory(run).manifest
    FORGERIES[case](manifest)
    RunDirectory(run).save_manifest(manifest)
    grid = NearGrid(parts(tmp_path, 2))
    with pytest.raises(FedotpError, match="is damaged") as caught:
        resume_serving(grid, run, QUICK, **named(grid))
    assert "\n" not in str(caught.value)
