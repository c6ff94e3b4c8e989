"""Limits in the report: what the classifiers themselves say, calibrated by one half and asked about the other."""

from pathlib import Path

import numpy as np
import pytest
from report_made import make_inputs, make_run

import fedotp
from fedotp.report import _limits, analyse
from fedotp.report._limits import Limits
from fedotp.runs.directory import RunDirectory


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Two clients with 20 test images each."""
    inputs = make_inputs(tmp_path_factory.mktemp("limits"), 100)
    return make_run(inputs, inputs / "run")


def measured(run: RunDirectory) -> Limits:
    found = analyse(run, n_images=1, masses=(0.5,)).limits
    assert found is not None
    return found


def test_one_division_by_the_classifiers_themselves(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_limits, "_HALVES", 1)
    monkeypatch.setattr(_limits, "_half", lambda n, rng: (np.arange(n // 2), np.arange(n // 2, n)))
    found = measured(run)
    data = fedotp.data.load_dataset(run.config.data.dataset)
    rows = [np.random.default_rng(i).permutation(client.test) for i, client in enumerate(run.partition.clients)]
    images = [[data.test.image(row) for row in each] for each in rows]
    labels = [[data.classes[label] for label in data.test.labels[each]] for each in rows]
    expected = []
    for number, client in enumerate(run.partition.clients):
        own, names = images[number], labels[number]
        calibrated = fedotp.load(run.path, client.name).calibrated(own[:10], names[:10])
        half = calibrated.predict(own[10:], coverage=0.9)
        covered = np.mean([name in one for name, one in zip(names[10:], half.sets, strict=True)])
        size = np.mean([len(one) for one in half.sets])
        others = calibrated.predict(images[1 - number])
        expected.append((client.name, 10, covered, size, half.unlike.mean(), others.unlike.mean()))
    assert [
        (each.client, each.images, each.coverage, each.size, each.flagged, each.others_flagged)
        for each in found.clients
    ] == expected


def test_means_over_divisions(run: RunDirectory, tmp_path: Path) -> None:
    found = measured(run)
    assert (found.asked, len(found.clients)) == (0.9, 2)
    for each in found.clients:
        assert each.low <= each.coverage <= each.high
        assert each.coverage > 0.87  # 10 / 11 is the mean over all divisions, more where the best class is added
        assert each.size >= 1
        assert each.flagged <= 0.05
        assert each.by_all is not None
    (alone,) = measured(make_run(run.path.parent, tmp_path / "one", n_clients=1)).clients
    assert (alone.images, alone.by_all, alone.others_flagged) == (20, None, None)  # there are no others
