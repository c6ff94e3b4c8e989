"""The class prior of a classifier: from a run, a bundle, a site that joined; changed, calibrated, left out."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from classifier_made import Made
from hypothesis import given
from hypothesis import strategies as st

import fedotp
from fedotp.classifier import Classifier, ClassPrior, calibrated_by, save_calibration
from fedotp.classifier._onnx import _Graph
from fedotp.errors import FedotpError
from fedotp.runs.one import join

SHARES = {"blue": 0.7, "green": 0.2, "red": 0.1}


@pytest.fixture(scope="module")
def plain(made: Made) -> Classifier:
    return fedotp.load(made.run("fedotp").path, "client-1")


def under(probabilities: np.ndarray, strength: float, counts: np.ndarray, smoothing: float) -> np.ndarray:
    """Plain probabilities (n, K) times frequencies to the power of the strength, in NumPy."""
    frequencies = (counts + smoothing) / (counts + smoothing).sum()
    found = probabilities * frequencies**strength
    return found / found.sum(-1, keepdims=True)


def counted(made: Made, kind: str, client: str) -> np.ndarray:
    """The labels of a client's training images, counted from the partition and the folder."""
    rows = next(each.train for each in made.run(kind).partition.clients if each.name == client)
    labels = fedotp.data.load_dataset(str(made.inputs / "data")).train.labels[rows]
    return np.array([(labels == k).sum() for k in range(3)])


def test_probabilities_are_those_of_bayes_rule(made: Made, plain: Classifier) -> None:
    images, counts = made.test_images(np.arange(6)), counted(made, "fedotp", "client-1")
    assert counts.max() > counts.min()
    before = plain.predict(images).probabilities
    for strength in (0.4, 1.0, 2.0):
        found = plain.with_prior(strength).predict(images).probabilities
        np.testing.assert_allclose(found, under(before, strength, counts, 0.3), atol=1e-10, rtol=0)
    given_shares = plain.with_prior(frequencies=SHARES)
    np.testing.assert_allclose(
        given_shares.predict(images).probabilities, under(before, 1, np.array([0.7, 0.2, 0.1]), 0), atol=1e-10, rtol=0
    )
    some = plain.with_prior(0.5, {"red": 1, "green": 4, "blue": 10})
    np.testing.assert_allclose(
        some.predict(images).probabilities, under(before, 0.5, np.array([10, 4, 1]), 0), atol=1e-10, rtol=0
    )
    np.testing.assert_array_equal(some.with_prior(0).predict(images).probabilities, before)
    assert some.with_prior(0.5) is some
    assert plain.with_prior(1).with_mass(0.4).prior is not None
    assert plain.with_prior(1).with_classes(["cat", "dog"]).log_prior is None


def test_the_onnx_graph_has_it(made: Made) -> None:
    """The program that is exported; tests/extras reads the file with onnxruntime."""
    classifier = fedotp.load(made.run("fedotp, prior").path, "client-1", device="cpu")
    images = made.test_images(np.arange(4))
    crops = torch.from_numpy(np.stack([np.asarray(classifier.transform.crop(image)) for image in images]))
    with torch.no_grad():
        found, _ = _Graph(classifier).eval()(crops)
    np.testing.assert_allclose(found, classifier.predict(images).probabilities, atol=2e-5)
    assert np.abs(found.numpy() - classifier.with_prior(0).predict(images).probabilities).max() > 0.01


def test_without_the_data(made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nowhere(*_: object, **__: object) -> None:
        raise FedotpError("no data set here")

    paths = [made.run(kind).path for kind in ("fedotp, prior", "fedotp")]
    monkeypatch.setattr("fedotp.runs.one._inputs.load_dataset", nowhere)
    with pytest.raises(FedotpError, match=r"class frequencies of client-1: .*no data set here; .* --prior 0"):
        fedotp.load(paths[0], "client-1")
    assert fedotp.load(paths[0], "client-1", prior=0).log_prior is None
    shares = fedotp.load(paths[0], "client-1", frequencies=SHARES)
    assert shares.log_prior is not None
    np.testing.assert_allclose(np.exp(shares.log_prior), [0.7, 0.2, 0.1])
    plain = fedotp.load(paths[1], "client-1")
    with pytest.raises(FedotpError, match="no data set here"):
        plain.with_prior(1)
    plain.save(tmp_path / "bundle")  # as before: there are no frequencies to write
    loaded = fedotp.load(tmp_path / "bundle", backbone=made.backbone)
    with pytest.raises(FedotpError, match=r"frequencies of client-1 are unknown; give the frequencies"):
        loaded.with_prior(1)


def test_a_client_that_joined_has_its_own(made: Made, tmp_path: Path) -> None:
    shutil.copytree(made.run("fedotp, prior").path, tmp_path / "run")
    shutil.copytree(made.inputs / "data" / "night", tmp_path / "site")
    result = join(tmp_path / "run", tmp_path / "site", epochs=1)
    test = fedotp.data.load_dataset(str(tmp_path / "site")).test
    found = fedotp.load(tmp_path / "run", "site")
    assert found.prior is not None
    assert found.prior.as_dict() == result["prior"] | {"given": False}
    assert (found.prior.strength, found.prior.counts.sum()) == (1, result["train_images"])
    right = (
        np.array(found.predict([test.image(i) for i in range(len(test))]).labels)
        == np.array(found.classes)[test.labels]
    )
    assert right.mean() == result["after"]["accuracy"]
    (tmp_path / "run" / "joined" / "site" / "result.json").write_text('{"prior": {"strength": 1}}')
    with pytest.raises(FedotpError, match=r"result.json: a prior must have strength, .*given, got strength"):
        fedotp.load(tmp_path / "run", "site")


def test_a_bundle_has_the_frequencies_unless_they_are_left_out(made: Made, plain: Classifier, tmp_path: Path) -> None:
    images = made.test_images(np.arange(4))
    strong = plain.with_prior(1.5)
    strong.save(tmp_path / "with")
    loaded = fedotp.load(tmp_path / "with", backbone=made.backbone)
    np.testing.assert_array_equal(loaded.predict(images).probabilities, strong.predict(images).probabilities)
    np.testing.assert_array_equal(
        loaded.with_prior(0).predict(images).probabilities, plain.predict(images).probabilities
    )
    strong.without_frequencies().save(tmp_path / "without")
    assert "prior" not in json.loads((tmp_path / "without" / "bundle.json").read_text())
    np.testing.assert_array_equal(
        fedotp.load(tmp_path / "without", backbone=made.backbone).predict(images).probabilities,
        plain.predict(images).probabilities,
    )


def test_a_calibration_is_of_one_prior(
    made: Made, plain: Classifier, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = tmp_path / "bundle"
    plain.save(bundle)
    calibrated = calibrated_by(plain.with_prior(1), made.inputs / "data", every=True)
    save_calibration(calibrated, bundle)
    loaded = fedotp.load(bundle, backbone=made.backbone)
    assert loaded.calibration is not None
    assert loaded.prior is not None
    assert loaded.prior.strength == 1
    (image,) = made.test_images(np.arange(1))
    assert loaded.predict(image, coverage=0.9).sets == calibrated.predict(image, coverage=0.9).sets
    for change in ({"strength": 0.5}, {"strength": 0}, {"counts": [1, 2, 30]}):
        facts = json.loads((bundle / "bundle.json").read_text())
        facts["prior"] |= change
        other = shutil.copytree(bundle, tmp_path / json.dumps(change).replace("/", ""))
        (other / "bundle.json").write_text(json.dumps(facts))
        assert fedotp.load(other, backbone=made.backbone).calibration is None
        assert "was calibrated with another class prior" in caplog.text
        caplog.clear()


@pytest.mark.parametrize(
    ("frequencies", "complaint"),
    [
        ({"blu": 0.5, "red": 0.5}, "unknown class 'blu'; did you mean 'blue'"),
        ({"blue": 0.5, "red": 0.5}, "missing for green; give one for each of the 3 classes"),
        (SHARES | {"red": 0}, "red = 0: must be a share or a number of images, from 1e-09"),
        (SHARES | {"red": float("nan")}, "red = nan: must be"),
    ],
)
def test_bad_frequencies(plain: Classifier, frequencies: dict[str, float], complaint: str) -> None:
    with pytest.raises(FedotpError, match=complaint):
        plain.with_prior(frequencies=frequencies)
    for strength in (-0.1, 10.1, float("nan")):
        with pytest.raises(FedotpError, match=r"prior = .*: must be from 0 to 10"):
            plain.with_prior(strength)


@given(
    st.floats(0, 10), st.floats(1e-6, 100), st.lists(st.integers(0, 10**6) | st.floats(0, 1), min_size=2, max_size=9)
)
def test_what_is_written_is_what_is_read(strength: float, smoothing: float, counts: list[float]) -> None:
    prior = ClassPrior(strength, smoothing, lambda: np.array(counts, np.float64), given=True)
    again = ClassPrior.from_dict(json.loads(json.dumps(prior.as_dict())), len(counts))
    assert again.as_dict() == prior.as_dict()
    if strength:
        assert again.logits is not None
        assert prior.logits is not None
        assert torch.equal(again.logits, prior.logits)
        assert bool(again.logits.isfinite().all())
