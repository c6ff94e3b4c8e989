"""Bundles: what is written is what is read, and what was tampered with is refused in one line."""

import hashlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from classifier_made import KINDS, Made
from PIL import Image

import fedotp
from fedotp.classifier import load
from fedotp.clip import CLIP, TINY, save
from fedotp.errors import FedotpError


@pytest.fixture
def bundle(made: Made, tmp_path: Path) -> Path:
    fedotp.load(made.run("fedotp").path, "client-1").save(tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_loaded_predicts_the_same(made: Made, kind: str, tmp_path: Path) -> None:
    classifier = fedotp.load(made.run(kind).path, "client-1")
    classifier.save(tmp_path / "bundle", with_memory=True)
    loaded = fedotp.load(tmp_path / "bundle", backbone=made.backbone)
    images = made.test_images(np.arange(8))
    np.testing.assert_array_equal(loaded.predict(images).probabilities, classifier.predict(images).probabilities)
    assert (loaded.client, loaded.classes, loaded.predictor.kinds) == (
        "client-1",
        classifier.classes,
        classifier.predictor.kinds,
    )
    assert loaded.predictor.params.keys() == classifier.predictor.params.keys()
    # the prompts in the bundle make the very class features beside them
    again = loaded.with_classes(loaded.classes) if kind != "fedotp, per class" else classifier
    torch.testing.assert_close(again.predictor.classes[0], loaded.predictor.classes[0])
    maps, expected = loaded.explain(images[0]), classifier.explain(images[0])
    np.testing.assert_array_equal(maps.similarity, expected.similarity)


def test_new_images_are_normalised_as_in_the_run(made: Made, tmp_path: Path) -> None:
    """Resized bilinearly, with CIFAR's mean and deviation: from the run, from its bundle, and as the bundle says."""
    classifier = fedotp.load(made.run("fedotp, normalised as cifar").path, "client-1")
    classifier.save(tmp_path / "bundle")
    loaded = fedotp.load(tmp_path / "bundle", backbone=made.backbone)
    picture = Image.effect_noise((57, 90), 80).convert("RGB")
    small = np.asarray(picture.resize((32, 50), Image.Resampling.BILINEAR))[9:41]
    expected = (small / 255 - [0.4914, 0.4822, 0.4465]) / [0.2023, 0.1994, 0.2010]
    for each in (classifier, loaded):
        np.testing.assert_allclose(each.transform(picture).movedim(0, -1), expected, atol=1e-5)
    shown = json.loads((tmp_path / "bundle" / "bundle.json").read_text())["preprocessing"]
    assert (shown["interpolation"], shown["mean"]) == ("bilinear", [0.4914, 0.4822, 0.4465])


def test_a_bundle_is_small_and_has_nothing_of_this_machine(made: Made, bundle: Path) -> None:
    assert sorted(path.name for path in bundle.iterdir()) == [
        "bundle.json",
        "classifier.safetensors",
        "prompts.safetensors",
    ]
    content = b"".join(path.read_bytes() for path in bundle.iterdir())
    assert str(made.inputs).encode() not in content
    assert len(content) < 20_000
    facts = json.loads((bundle / "bundle.json").read_text())
    assert facts["backbone"]["name"] == "tiny.safetensors"
    assert facts["method"] == {"name": "fedotp", **vars(made.run("fedotp").config.method)}
    assert facts["preprocessing"]["image_size"] == 32
    config = (made.run("fedotp").path / "config.toml").read_bytes()
    assert facts["trained_with"]["config"] == hashlib.sha256(config).hexdigest()
    folded = safetensors.torch.load_file(bundle / "classifier.safetensors")
    assert {name: tuple(value.shape) for name, value in folded.items()} == {"classes": (2, 3, 32), "logit_scale": ()}
    torch.testing.assert_close(folded["classes"].norm(dim=-1), torch.ones(2, 3))


def test_a_backbone_without_a_name_is_asked_for(made: Made, bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(FedotpError, match=r"needs the backbone tiny\.safetensors .* give its path with --backbone"):
        fedotp.load(bundle)
    save(CLIP.random(TINY, seed=1), tmp_path / "other.safetensors")
    with pytest.raises(FedotpError, match="give the original weights"):
        fedotp.load(bundle, backbone=tmp_path / "other.safetensors")
    with pytest.raises(FedotpError, match="has no client 'client-2'; did you mean client-1"):
        fedotp.load(bundle, "client-2", backbone=made.backbone)
    assert fedotp.load(bundle / "bundle.json", backbone=made.backbone).client == "client-1"


def test_features_of_private_images_leave_only_if_asked_for(made: Made, tmp_path: Path) -> None:
    classifier = fedotp.load(made.run("pfedprompt").path, "client-1")
    with pytest.raises(FedotpError, match="give --with-memory"):
        classifier.save(tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
    fedotp.load(made.run("promptfl").path, "client-1").save(tmp_path / "bundle", with_memory=True)
    assert not (tmp_path / "bundle" / "memory.safetensors").exists()


# Writing ---------------------------------------------------------------------------------------------------


def test_nothing_is_overwritten_by_accident(made: Made, bundle: Path, tmp_path: Path) -> None:
    other = fedotp.load(made.run("fedotp").path, "client-2")
    with pytest.raises(FedotpError, match="already exists; choose another name, or overwrite it with --force"):
        other.save(bundle)
    assert fedotp.load(bundle, backbone=made.backbone).client == "client-1"
    other.save(bundle, force=True)
    assert fedotp.load(bundle, backbone=made.backbone).client == "client-2"
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "mine.jpg").touch()
    with pytest.raises(FedotpError, match="is not a bundle; choose another name"):
        other.save(photos, force=True)
    assert [path.name for path in photos.iterdir()] == ["mine.jpg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "photos"]


@pytest.mark.parametrize("fails_at", range(5))
def test_a_full_disk_leaves_the_old_bundle_or_none(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """`os.replace` moves three files and then one folder, or two with an old one in the place."""
    one, other = (fedotp.load(made.run("fedotp").path, f"client-{i}") for i in (1, 2))
    one.save(tmp_path / "old")
    done = 0
    replace = os.replace

    def full(source: Any, target: Any) -> None:
        nonlocal done
        done += 1
        if done == fails_at + 1:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FedotpError, match=r"cannot write .*No space left on device"):
        other.save(tmp_path / "old", force=True)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert fedotp.load(tmp_path / "old", backbone=made.backbone).client == "client-1"


# Reading what was tampered with -------------------------------------------------------------------------------


def facts_changed(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def tamper(bundle: Path) -> None:
        facts = json.loads((bundle / "bundle.json").read_text())
        change(facts)
        (bundle / "bundle.json").write_text(json.dumps(facts))

    return tamper


def tensors_changed(name: str, change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    """The checksum is made right again, as an attacker can do, too."""

    def tamper(bundle: Path) -> None:
        tensors = safetensors.torch.load_file(bundle / name)
        change(tensors)
        content = safetensors.torch.save(tensors)
        (bundle / name).write_bytes(content)
        facts_changed(lambda facts: facts["files"].update({name: hashlib.sha256(content).hexdigest()}))(bundle)

    return tamper


def content_changed(name: str, content: bytes, *, sealed: bool = False) -> Callable[[Path], None]:
    def tamper(bundle: Path) -> None:
        (bundle / name).write_bytes(content)
        if sealed:
            facts_changed(lambda facts: facts["files"].update({name: hashlib.sha256(content).hexdigest()}))(bundle)

    return tamper


NO_PRIOR = {"strength": 0, "smoothing": 0.3, "counts": [1, 2], "given": False}
PICKLE = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R."
TAMPERED: list[tuple[Callable[[Path], None], str]] = [
    (content_changed("bundle.json", b"{"), "bundle.json is not JSON"),
    (content_changed("bundle.json", b"[" * 100_000), "bundle.json is not JSON"),
    (content_changed("bundle.json", b"\xff\xfe"), "bundle.json is not JSON"),
    (facts_changed(lambda f: f.update(format="fedotp-bundle-9")), "format must be .* got 'fedotp-bundle-9'"),
    (facts_changed(lambda f: f.update(classes=["a", "a", "b"])), "classes must be distinct"),
    (facts_changed(lambda f: f.update(classes=["a", "b"], prior=NO_PRIOR)), "expected classes of shape"),
    (facts_changed(lambda f: f.update(template="none")), "must contain {} once"),
    (facts_changed(lambda f: f.update(storage="int4")), 'data.storage = "int4": must be float16 or int8'),
    (facts_changed(lambda f: f["method"].update(name="fedopt")), "did you mean fedotp"),
    (facts_changed(lambda f: f["method"].update(n_private=2)), "expected features of 3 prompts, got 2"),
    (facts_changed(lambda f: f["method"].update(n_shared=10**15)), "their sum must be from 1 to 256"),
    (facts_changed(lambda f: f["prompt"].update(n_ctx=10**15)), "n_ctx = 1000000000000000: must be from 1 to 1000"),
    (facts_changed(lambda f: f["backbone"].update(digest="0" * 64)), "give the original weights"),
    (facts_changed(lambda f: f["preprocessing"].update(spec="none")), "incompatible preprocessing: expected 'none'"),
    (facts_changed(lambda f: f.update(files=None)), "files must be an object"),
    (facts_changed(lambda f: f.update(calibration=None)), "bundle.json: .*calibration"),
    (facts_changed(lambda f: f["prior"].pop("counts")), "a prior must have strength, smoothing, counts, given, got"),
    (facts_changed(lambda f: f["prior"].update(counts=[1, 2, math.nan])), "must be numbers from 0 to"),
    (facts_changed(lambda f: f["prior"].update(counts=[1, 2, 10**400])), "must be numbers from 0 to"),
    (facts_changed(lambda f: f["prior"].update(counts=[1, True, "2"])), "must be numbers from 0 to"),
    (facts_changed(lambda f: f["prior"].update(counts=[1, 2, 0], smoothing=0)), "must together be at least 1e-09"),
    (facts_changed(lambda f: f["prior"].update(strength=11)), "bundle.json: prior = 11: must be from 0 to 10"),
    (facts_changed(lambda f: f["prior"].update(given="no")), 'given of a prior must be true or false, got "no"'),
    (lambda bundle: (bundle / "prompts.safetensors").unlink(), "cannot read .*prompts.safetensors: No such file"),
    (content_changed("prompts.safetensors", b"x"), "prompts.safetensors is corrupt"),
    (content_changed("prompts.safetensors", PICKLE, sealed=True), "prompts.safetensors is not a safetensors file"),
    (content_changed("classifier.safetensors", b""), "classifier.safetensors is corrupt"),
    (tensors_changed("prompts.safetensors", lambda t: t.pop("private")), "expected tensors"),
    (tensors_changed("prompts.safetensors", lambda t: t["private"].fill_(torch.nan)), "only finite numbers"),
    (tensors_changed("classifier.safetensors", lambda t: t.pop("classes")), "expected classes of shape .* got None"),
    (
        tensors_changed("classifier.safetensors", lambda t: t.update(classes=t["classes"][:1].clone())),
        "expected features of 2 prompts, got 1",
    ),
]


@pytest.mark.parametrize(("tamper", "complaint"), TAMPERED, ids=[complaint[:40] for _, complaint in TAMPERED])
def test_a_damaged_or_hostile_bundle_gets_one_line(
    made: Made, bundle: Path, tamper: Callable[[Path], None], complaint: str
) -> None:
    tamper(bundle)
    with pytest.raises(FedotpError, match=complaint) as caught:
        fedotp.load(bundle, backbone=made.backbone)
    assert "\n" not in str(caught.value)


def test_a_hostile_memory(made: Made, tmp_path: Path) -> None:
    def saved(name: str) -> Path:
        load(made.run("pfedprompt").path, "client-1").save(tmp_path / name, with_memory=True)
        return tmp_path / name

    for name, change, complaint in (
        ("labels", lambda t: t["labels"].fill_(3), "labels must be integers from -1 to 2"),
        ("width", lambda t: t.update(spatial=t["spatial"][..., :5].clone()), "expected tensors"),
        ("none", lambda t: t.clear(), "expected tensors"),
    ):
        folder = saved(name)
        tensors_changed("memory.safetensors", change)(folder)
        with pytest.raises(FedotpError, match=complaint):
            fedotp.load(folder, backbone=made.backbone)
    folder = saved("without")
    facts_changed(lambda f: f["files"].pop("memory.safetensors"))(folder)
    with pytest.raises(FedotpError, match="export the bundle with --with-memory"):
        fedotp.load(folder, backbone=made.backbone)
