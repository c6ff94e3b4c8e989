"""docs/use.md: its Python runs as printed, and NumPy alone gives the same probabilities."""

import re
from pathlib import Path

import numpy as np
import pytest
from classifier_made import Made
from PIL import Image

import fedotp
from fedotp.classifier import Classifier

BLOCKS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "use.md").read_text(encoding="utf-8"), re.DOTALL
)


@pytest.fixture
def classifier(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Classifier:
    """In a working directory with what the page speaks of."""
    monkeypatch.chdir(tmp_path)
    loaded = fedotp.load(made.run("fedotp").path, "client-1")
    loaded.save("client-1.bundle")
    for name, picture in zip(("photo.jpg", "other.jpg"), made.test_images(np.arange(2)), strict=True):
        picture.convert("RGB").save(name)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "first").symlink_to(made.run("fedotp").path)
    return loaded


def test_from_a_run(classifier: Classifier, capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[0], {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{classifier.predict(['photo.jpg', 'other.jpg']).labels} (2, 3)"
    assert lines[2] == "('global', 'local') (2, 4, 4) (2, 4, 4)"


def test_from_a_bundle(classifier: Classifier, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fedotp.load
    monkeypatch.setattr(fedotp, "load", lambda path: whole(path, backbone=made.backbone), raising=False)
    names: dict[str, Classifier] = {}
    exec(BLOCKS[1], names)
    assert names["classifier"].predict("photo.jpg").labels == classifier.predict("photo.jpg").labels


@pytest.mark.parametrize("strength", [None, 0, 1.5])
def test_numpy_alone(classifier: Classifier, strength: float | None) -> None:
    """With a class prior, and in a bundle that has none."""
    code = BLOCKS[2]
    assert len(code.splitlines()) <= 18
    assert "fedotp" not in code
    classifier = classifier.without_frequencies() if strength is None else classifier.with_prior(strength)
    classifier.save("client-1.bundle", force=True)
    with Image.open("photo.jpg") as image:
        names = {"tokens": classifier.encode([image]).tokens[0].numpy()}
    exec(code, names)
    np.testing.assert_allclose(names["p"], classifier.predict("photo.jpg").probabilities[0], atol=1e-4)
