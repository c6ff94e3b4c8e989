"""The analysis of any run: its shape, what it says of what is missing, and that only images need the data."""

import base64
import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from report_made import make_inputs, make_run

from fedotp.errors import FedotpError
from fedotp.federation import Checkpoint, Progress, ServerStepSettings
from fedotp.federation.clients import KeptRows
from fedotp.federation.server._step import ServerStep
from fedotp.report import analyse, plot_curves, project_prompts
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one._inputs import _load_once


def test_what_a_page_is_given(done: RunDirectory) -> None:
    content = json.loads(json.dumps(analyse(done, n_images=2, masses=(0.4, 1.0)).as_dict(), allow_nan=False))
    assert set(content) == {"sites", "maps", "plans", "tsne", "limits", "notes"}
    assert len(content["maps"]) == 2 * 2
    shown = content["maps"][0]
    assert {"client", "label", "predicted", "image", "grid", "prompts"} == set(shown)
    assert shown["grid"] == 4
    assert [prompt["kind"] for prompt in shown["prompts"]] == ["global", "local"]
    for prompt in shown["prompts"]:
        assert np.shape(prompt["similarity"]) == (4, 4)
        assert list(prompt["plans"]) == ["0.4", "1"]
        for plan in prompt["plans"].values():
            assert np.sum(plan) == pytest.approx(1, abs=1e-3)
    picture = Image.open(io.BytesIO(base64.b64decode(shown["image"].removeprefix("data:image/png;base64,"))))
    assert picture.size == (32, 32)
    plans = content["plans"]
    assert plans["masses"] == [0.4, 1.0]
    assert plans["prompts"] == ["global", "local"]
    assert np.shape(plans["entropy"]) == (2, 2)
    assert {len(plans[key]) for key in ("unassigned", "overlap", "accuracy")} == {2}
    assert plans["uniform_entropy"] == 1
    assert content["tsne"] is None
    assert content["notes"] == [
        "no prediction sets: a coverage of 0.9 needs 18 test images of a client",
        "no t-SNE: at least 5 clients with private prompts are required, this run has 2",
    ]


def test_prompts_without_a_global_or_a_local_one(squares: Path, tmp_path: Path) -> None:
    alone = analyse(make_run(squares, tmp_path / "alone", name="fedotp", n_shared=0), n_images=1)
    assert alone.plans is not None
    assert alone.plans.overlap is None
    shared = analyse(make_run(squares, tmp_path / "shared", name="fedotp", n_private=0), n_images=1)
    assert shared.maps[0].kinds == ("global",)


def test_only_images_need_the_data(tmp_path: Path) -> None:
    inputs = make_inputs(tmp_path)
    done = make_run(inputs, tmp_path / "run", n_clients=5)
    before = analyse(done)
    shutil.rmtree(inputs / "data")
    shutil.rmtree(inputs / "store")
    after = analyse(done.path)
    assert before.maps
    assert not after.maps
    assert after.plans is None
    assert ["no prediction sets" in note for note in before.notes] == [True]
    assert ["data does not exist" in note for note in after.notes] == [True]
    assert before.as_dict()["tsne"] == after.as_dict()["tsne"] is not None
    (inputs / "tiny.safetensors").unlink()
    opened = RunDirectory.open(done.path)
    plot_curves([opened])
    np.testing.assert_array_equal(project_prompts(opened).x, before.tsne.x if before.tsne else None)
    _load_once.cache_clear()
    with pytest.raises(FedotpError, match=r"tiny\.safetensors"):
        project_prompts(opened)


def test_a_run_of_real_sites_has_only_what_is_shared(done: RunDirectory, tmp_path: Path) -> None:
    """As the server of real sites leaves it: no partition, no rows, a manifest that says so."""
    shutil.copytree(done.path, tmp_path / "run")
    deployed = RunDirectory.open(tmp_path / "run")
    (deployed.path / "partition.json").unlink()
    deployed.kept.unlink()
    server = SimpleNamespace(params=Checkpoint.read(deployed.checkpoint).server, step=ServerStep(ServerStepSettings()))
    state = SimpleNamespace(server=server, kept=KeptRows({}, 2), device=torch.device("cpu"), round=2, group_size=1)
    Checkpoint.write(deployed.checkpoint, state, Progress())
    deployed.save_manifest({**deployed.manifest, "deployment": {"sites": 2}})
    found = analyse(deployed.path)
    assert not found.maps
    assert found.plans is found.tsne is None
    assert "real sites" in found.notes[0]
    assert len(found.notes) == 2
    plot_curves([deployed])
