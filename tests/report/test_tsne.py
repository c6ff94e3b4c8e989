"""Private prompts in the plane: who is whose neighbour, and what points are coloured by."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from report_made import make_run

from fedotp.data import coarse_labels
from fedotp.data._names import COARSE_OF
from fedotp.errors import FedotpError
from fedotp.federation.testing import Predictions
from fedotp.report import project_prompts
from fedotp.report._tsne import client_groups, neighbours
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import StoredParameters

# The coarse label of every class of CIFAR-100 in alphabetical order, as its archive numbers them.
COARSE = """
    4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 8
    15 13 14 17 18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6
    19 5 5 8 19 18 1 2 15 6 0 17 8 14 13
"""
CLASSES = sorted(COARSE_OF)


def test_coarse_labels_are_those_of_the_archive() -> None:
    found = coarse_labels(CLASSES)
    assert found is not None
    names = sorted(set(found))
    assert [names.index(name) for name in found] == [int(number) for number in COARSE.split()]
    assert coarse_labels(CLASSES[:99]) is None


@pytest.fixture(scope="module")
def many(squares: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return make_run(squares, tmp_path_factory.mktemp("many") / "run", n_clients=6)


def test_a_run_that_is_not_complete_has_no_groups_yet(many: RunDirectory, tmp_path: Path) -> None:
    shutil.copytree(many.path, tmp_path / "run")
    for name in ("summary.json", "predictions.npz"):
        (tmp_path / "run" / name).unlink()
    with pytest.raises(FedotpError, match=r"no t-SNE yet: .* written at the end of a run"):
        project_prompts(tmp_path / "run")


def test_clusters_stay_together(many: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    centres = 5 * torch.randn(2, 1, 1, 2, 8)
    prompts = (centres.expand(-1, 3, -1, -1, -1) + 0.1 * torch.randn(2, 3, 1, 2, 8)).flatten(0, 1)
    planted = StoredParameters({}, {"private": prompts}, np.arange(6))
    monkeypatch.setattr(StoredParameters, "of", lambda run: planted)
    found = project_prompts(many)
    points = np.stack([found.x, found.y], -1)
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    same = np.arange(6)[:, None] // 3 == np.arange(6) // 3
    assert distances[same].max() < distances[~same].min()
    assert found.perplexity == pytest.approx(5 / 3)


def test_neighbours() -> None:
    points = np.array([[0.0], [1.0], [5.0], [5.5], [9.0]])
    together, by_chance = neighbours(points, ["a", "a", "b", "c", "c"])
    assert together == pytest.approx(3 / 5)  # the two of a, and the last
    assert by_chance == pytest.approx(4 / 20)  # ordered pairs that are of one group


def test_groups(many: RunDirectory) -> None:
    lines, classes = many.predictions(), many.manifest["data"]["classes"]
    by, groups = client_groups(many)
    assert by == "most frequent class"
    for client, group in enumerate(groups):
        counts = np.bincount(lines.label[lines.client == client], minlength=2)
        assert group == (classes[counts.argmax()] if counts.any() else "no test images")
    changed = RunDirectory(many.path)
    changed.manifest["domains"] = ["day", "day", "night", "night", None, "day"]
    assert client_groups(changed) == ("domain", ["day", "day", "night", "night", "mixed", "day"])


def test_groups_of_cifar100(many: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of one coarse label have different classes."""
    changed = RunDirectory(many.path)
    changed.manifest["data"]["classes"] = CLASSES
    rows = [(0, "whale"), (0, "trout"), (0, "seal"), (1, "tulip"), (2, "bus"), (3, "tank"), (4, "otter"), (5, "man")]
    client, label = (np.array(column) for column in zip(*((c, CLASSES.index(k)) for c, k in rows), strict=True))
    lines = Predictions(client, label, label, label, label.astype(float))
    monkeypatch.setattr(changed, "predictions", lambda: lines)
    by, groups = client_groups(changed)
    assert by == "coarse label"
    assert groups == ["aquatic mammals", "flowers", "vehicles 1", "vehicles 2", "aquatic mammals", "people"]
