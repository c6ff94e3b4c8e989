"""Forged files: a site's private prompts, and the directory of a server's run with its seals renewed."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from near_sites import NearGrid, interrupted, make_deployable, parts

from fedotp.errors import FedotpError
from fedotp.federation import Settings
from fedotp.federation.clients import KeptRows
from fedotp.flower.site._policy import Policy
from fedotp.flower.site._site import _Work
from fedotp.flower.site._state import Ledger, PrivateFile
from fedotp.runs.directory import RunDirectory


def _work(path: Path) -> _Work:
    clients: Any = SimpleNamespace(kept=KeptRows({"private": torch.zeros(2, 3)}, 1), device=torch.device("cpu"))
    return _Work(clients, PrivateFile(path), Ledger(path.with_name("releases.jsonl"), "a", Settings(), 3, Policy()))


def _stored(path: Path, **params: torch.Tensor) -> Path:
    PrivateFile(path).keep(1, params)
    return path


@pytest.mark.parametrize(
    "params",
    [
        {"other": torch.ones(2, 3)},
        {"private": torch.ones(3, 2)},
        {"private": torch.ones(2, 3).half()},
        {"private": torch.ones(2, 3), "more": torch.ones(1)},
        {"private": torch.tensor(1.0)},
    ],
)
def test_a_private_prompt_of_another_shape_is_refused(params: dict[str, torch.Tensor], tmp_path: Path) -> None:
    path = _stored(tmp_path / "private.safetensors", **params)
    with pytest.raises(FedotpError, match=r"expected .*; restore it from a backup, or remove it"):
        _work(path).recall(1)


@pytest.fixture(scope="module")
def stopped(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged")
    interrupted(make_deployable(inputs), folder)
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
    with pytest.raises(FedotpError, match="is corrupt") as caught:
        NearGrid(parts(tmp_path, 3)).resume(run)
    assert "\n" not in str(caught.value)
