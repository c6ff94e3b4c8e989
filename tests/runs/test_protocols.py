"""The field's protocols from the published layouts to the summary, on a toy backbone."""

from collections.abc import Callable
from pathlib import Path

import pytest

import fedotp
from data.layouts import fgvc_aircraft, pacs, write_tree, zhou_split
from fedotp.clip import CLIP, TINY, save
from fedotp.config import load_config


def flowers(root: Path) -> Path:
    """Six classes as CoOp lists them: more than a preset's two clients with base classes need."""
    folder = root / "oxford_flowers"
    rows = {
        split: [(f"{k}{i}{split}.jpg", k, f"flower {k}") for k in range(6) for i in range(3)]
        for split in ("train", "val", "test")
    }
    write_tree(folder / "jpg", [row[0] for split in rows.values() for row in split])
    zhou_split(folder, "OxfordFlowers", rows)
    return folder


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tower") / "tiny.safetensors"
    save(CLIP.random(TINY), path)
    return path


@pytest.mark.parametrize(
    ("preset", "layout", "changes", "views"),
    [
        ("holdout", pacs, [], {"global", "before joining", "after joining"}),
        ("novel", flowers, ["data.dataset=flowers102", "method.name=fedmgp"], {"global", "base", "novel"}),
        ("pfedmoap-flowers", flowers, [], set()),
        ("promptfolio-pets", fgvc_aircraft, ["data.dataset=fgvc_aircraft"], set()),
    ],
)
def test_a_protocol(
    preset: str, layout: Callable[[Path], Path], changes: list[str], views: set[str], tower: Path, tmp_path: Path
) -> None:
    folder = layout(tmp_path)
    small = [f"data.root={tmp_path}", f"data.store={tmp_path / 'store'}", f"backbone.name={tower}", "prompt.n_ctx=2"]
    small += ["federation.rounds=1", "federation.local_epochs=1", "compute.device=cpu"]
    config = load_config(preset)
    if config.partition.shots is not None:
        small += ["partition.n_clients=2", "partition.shots=2"]
    run = fedotp.run(config.override([*changes, *small]), tmp_path / "run")
    assert run.manifest["data"]["name"] == fedotp.data.load_dataset(folder).name
    assert {view["view"] for view in run.summary.get("views", [])} - {"personal"} == views
    away = set(run.config.federation.holdout)
    assert {client["domain"] for client in run.summary.get("joined", {"clients": []})["clients"]} == away
    assert not away & {client["domain"] for client in run.summary["clients"]}
