"""Calibrated classifiers: what they predict, what a bundle keeps, what makes a calibration void, what is refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from classifier_made import Made
from PIL import Image

import fedotp
from fedotp.classifier import Classifier, calibrated_by, save_calibration
from fedotp.errors import FedotpError


@pytest.fixture(scope="module")
def calibrated(made: Made, classifier: Classifier) -> Classifier:
    """By all images of the data, in a folder per class."""
    return calibrated_by(classifier, made.inputs / "data", every=True)


def test_sets_hold_the_classes_that_fit_as_well_as_the_true_ones_did(made: Made, calibrated: Classifier) -> None:
    paths = sorted((made.inputs / "data").rglob("*.png"))
    everything = calibrated.predict(paths)
    true = [calibrated.classes.index(path.parent.name) for path in paths]
    scores = np.sort(1 - everything.probabilities[np.arange(len(true)), true])
    most = scores[int(np.ceil(0.8 * (len(scores) + 1))) - 1]
    found = calibrated.predict(paths, coverage=0.8)
    for names, row, best in zip(found.sets, everything.probabilities, everything.labels, strict=True):
        expected = {name for name, p in zip(calibrated.classes, row, strict=True) if 1 - p <= most} | {best}
        assert set(names) == expected
        assert names[0] == best
    assert everything.members is None
    with pytest.raises(FedotpError, match="prediction sets need a coverage"):
        _ = everything.sets
    assert np.mean([path.parent.name in names for path, names in zip(paths, found.sets, strict=True)]) >= 0.8


def test_the_test_images_of_a_run(made: Made, classifier: Classifier) -> None:
    """Their scores are those of the very predictions that the run has written."""
    run = made.run("fedotp")
    found = fedotp.load(run.path, "client-1", calibrate="test", score="lac").calibration
    assert found is not None
    lines = run.predictions()
    own = lines.loss[lines.client == run.manifest["clients"].index("client-1")]
    if len(own):  # of clients that were not evaluated at the end there are none
        np.testing.assert_allclose(found.conformity, np.sort(1 - np.exp(-own)), atol=1e-6)
    rows = next(client.test for client in run.partition.clients if client.name == "client-1")
    data = fedotp.data.load_dataset(str(made.inputs / "data"))
    labels = [data.classes[label] for label in data.test.labels[rows]]
    again = classifier.calibrated(made.test_images(rows), labels)
    assert again.calibration is not None
    np.testing.assert_allclose(found.conformity, again.calibration.conformity, atol=1e-4)
    np.testing.assert_allclose(found.outlying, again.calibration.outlying, rtol=0.05, atol=1e-3)


def test_a_bundle_is_calibrated_where_it_is(made: Made, classifier: Classifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "bundle")
    before = {path.name: path.read_bytes() for path in (tmp_path / "bundle").iterdir()}
    loaded = fedotp.load(tmp_path / "bundle", backbone=made.backbone)
    assert loaded.calibration is None
    (tmp_path / "bundle" / "mine.txt").write_text("a note of the site's")
    save_calibration(calibrated_by(loaded, made.inputs / "data", score="aps", every=True), tmp_path / "bundle")
    again = fedotp.load(tmp_path / "bundle", backbone=made.backbone)
    assert again.calibration is not None
    assert (len(again.calibration), again.calibration.score) == (36, "aps")
    after = {path.name: path.read_bytes() for path in (tmp_path / "bundle").iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"bundle.json"}
    assert "mine.txt" in after


def test_copies_count_once(made: Made, classifier: Classifier, tmp_path: Path) -> None:
    """Six images twenty times promise no more than six images do."""
    day = made.inputs / "data" / "day"
    originals = [path for name in ("red", "blue") for path in sorted((day / name).iterdir())[:3]]
    for copy in range(20):
        for path in originals:
            there = tmp_path / "copies" / path.parent.name / f"{copy}-{path.name}"
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, there)
    said: list[str] = []
    found = calibrated_by(classifier, tmp_path / "copies", every=True, on_left_out=said.append)
    assert said == ["6 images for calibration; excluded: 114 duplicates"]
    expected = classifier.calibrated(originals, [path.parent.name for path in originals]).calibration
    assert found.calibration is not None
    assert expected is not None
    np.testing.assert_allclose(found.calibration.conformity, expected.conformity, atol=1e-6)
    with pytest.raises(FedotpError, match=r"a coverage of 0\.9 needs at least 9 calibration images, got 6"):
        found.predict(originals[0], coverage=0.9)
    with pytest.raises(
        FedotpError, match=r"copies: at least 2 images are required; 0 images .* 6 images also in train"
    ):
        calibrated_by(classifier, tmp_path / "copies")


def test_a_runs_training_images_are_left_out_wherever_they_lie(
    made: Made, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder's own split would test with images that the run has trained on."""
    data = fedotp.data.load_dataset(str(made.inputs / "data"))
    trained, tested = ({Path(split.where(i)) for i in range(len(split))} for split in (data.train, data.test))
    for part, paths in (("train", trained), ("test", {*tested, *sorted(trained)[:5]})):
        for path in paths:
            there = tmp_path / "new" / part / path.parent.name / f"{path.parts[-3]}-{path.name}"
            there.parent.mkdir(parents=True, exist_ok=True)
            if part == "test":
                shutil.copy(path, there)
            else:
                Image.effect_noise((32, 32), 80).convert("RGB").save(there)
    run = made.run("fedotp").path
    found = fedotp.load(run, "client-1", calibrate=tmp_path / "new").calibration
    assert found is not None
    assert len(found) == len(tested)
    assert "5 images also in train" in caplog.text


@pytest.mark.parametrize("changed", ["mass", "dial", "prior", "classes"])
def test_void_once_it_is_another_classifier(calibrated: Classifier, changed: str) -> None:
    other = {
        "mass": lambda: calibrated.with_mass(0.3),
        "dial": lambda: calibrated.with_dial(0.1),
        "prior": lambda: calibrated.with_prior(1),
        "classes": lambda: calibrated.with_classes(("cat", "dog")),
    }[changed]()
    assert other.calibration is None
    with pytest.raises(FedotpError, match="client-1 is not calibrated"):
        other.predict(np.zeros((8, 8, 3), np.uint8), coverage=0.9)


def test_refused(made: Made, classifier: Classifier, calibrated: Classifier, tmp_path: Path) -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    classifier.save(tmp_path / "bundle")
    for ask, complaint in (
        (lambda: calibrated.predict(image, coverage=0.99), "0.99 needs at least 99 calibration images, got"),
        (lambda: calibrated.predict(image, coverage=2), "coverage = 2"),
        (lambda: classifier.calibrated([image], ["violet"]), "unknown class 'violet'"),
        (lambda: classifier.calibrated([image, image], ["red"]), "a label for each of 2 calibration images, got 1"),
        (
            lambda: fedotp.load(tmp_path / "bundle", backbone=made.backbone, calibrate="test"),
            "is a bundle without test images",
        ),
    ):
        with pytest.raises(FedotpError, match=complaint):
            ask()
