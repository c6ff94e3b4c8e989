"""ONNX files, read by onnxruntime, against `Classifier` itself. `make test-extras`."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fedotp
from classifier.classifier_made import Made
from fedotp.classifier import Classifier, Origin
from fedotp.clip import CLIP, TINY, load
from fedotp.clip._config import ResNetConfig
from fedotp.federation.testing import Predictor
from fedotp.methods import FedOTP, PromptSettings, Task

runtime = pytest.importorskip("onnxruntime", reason="it is not installed here; `make test-extras` has it")
onnx = pytest.importorskip("onnx", reason="it is not installed here; `make test-extras` has it")
pytestmark = pytest.mark.filterwarnings("default")  # what the exporter complains of is not ours


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


def require_the_same(classifier: Classifier, images: list[Image.Image], path: Path) -> None:
    """One image, some, and one at a time give what the classifier gives."""
    session = runtime.InferenceSession(path)
    crops = np.stack([np.asarray(classifier.transform.crop(image)) for image in images])
    expected = classifier.predict(images).probabilities
    probabilities, scores = session.run(["probabilities", "scores"], {"image": crops})
    np.testing.assert_allclose(probabilities, expected, atol=2e-5)
    np.testing.assert_allclose(session.run(["probabilities"], {"image": crops[:1]})[0], expected[:1], atol=2e-5)
    prior = 0 if classifier.log_prior is None else classifier.log_prior
    logits = scores.astype(np.float64) * np.exp(float(classifier.task.logit_scale)) + prior
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    np.testing.assert_allclose(shares / shares.sum(-1, keepdims=True), expected, atol=2e-5)


KINDS = ["promptfl", "fedotp", "fedotp, classical", "fedotp, normalised as cifar", "pfedmoap", "fedotp, prior"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_of_scoring(made: Made, kind: str, tmp_path: Path) -> None:
    classifier = fedotp.load(made.run(kind).path, "client-1", device="cpu")
    classifier.save_onnx(tmp_path / "client.onnx")
    require_the_same(classifier, made.test_images(np.arange(5)), tmp_path / "client.onnx")
    onnx.checker.check_model(str(tmp_path / "client.onnx"), full_check=True)


RESNET = replace(TINY, vision=ResNetConfig(image_size=64, layers=(1, 1, 1, 1), width=8, heads=4))


@pytest.mark.parametrize(
    ("tower", "side", "options"),
    [("mini", 64, {}), ("resnet", 80, {"n_shared": 2, "n_private": 2, "dial": 0.25})],
    ids=["the backbone in the box", "a ResNet with four prompts and a dial"],
)
def test_towers(tower: str, side: int, options: dict[str, float], tmp_path: Path) -> None:
    """Of a classifier that has not been trained."""
    method, clip = FedOTP(**options), load("mini") if tower == "mini" else CLIP.random(RESNET)
    task = Task(clip, ("cat", "dog", "lorry"), PromptSettings(n_ctx=2))
    predictor = Predictor.of(method, task, method.untrained(task))
    classifier, draw = Classifier(predictor, task.clip, Origin("a", "", "", "mini")), np.random.default_rng(0)
    noise = [Image.fromarray(draw.integers(0, 256, (side, side + 7, 3), np.uint8)) for _ in range(3)]
    classifier.save_onnx(tmp_path / "tower.onnx")
    require_the_same(classifier, noise, tmp_path / "tower.onnx")


def test_a_file_says_what_it_is_and_the_page_runs_as_printed(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    classifier = fedotp.load(made.run("promptfl").path, "client-1", device="cpu")
    classifier.save_onnx("client-1.onnx")
    metadata = runtime.InferenceSession("client-1.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == list(classifier.classes)
    facts = json.loads(metadata["fedotp"])
    assert facts["client"] == "client-1"
    assert facts["preprocessing"]["image_size"] == classifier.tower.config.image_size
    assert facts["backbone"]["digest"] == classifier.tower.digest
    assert str(made.inputs) not in json.dumps(metadata)
    made.test_images(np.array([0]))[0].convert("RGB").resize((90, 57)).save("photo.jpg")
    page = (Path(__file__).parents[2] / "docs" / "use.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "onnxruntime" in block)
    names: dict[str, np.ndarray] = {}
    exec(code, names)
    expected = classifier.predict("photo.jpg")
    np.testing.assert_allclose(names["probabilities"], expected.probabilities, atol=2e-5)
    assert capsys.readouterr().out == f"{expected.labels[0]}\n"
