"""A classifier from a run predicts what the run predicted, without its data."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from classifier_made import KINDS, Made

import fedotp
from fedotp.classifier import load, open_classifiers
from fedotp.errors import FedotpError
from fedotp.prompts import PromptEncoder
from fedotp.runs.directory import RunDirectory
from fedotp.runs.one import join

NEEDS_DATA = ("promptfl-ft", "pfedprompt")


@pytest.mark.parametrize("kind", KINDS)
def test_the_very_numbers_of_the_run(made: Made, kind: str) -> None:
    """Every client, the held-out one included: labels exactly, the label's probability to 1e-5."""
    run = made.run(kind)
    predictions = run.predictions()
    classifiers = open_classifiers(run.path)
    checked = 0
    for number, client in enumerate(run.manifest["clients"]):
        mine = predictions.client == number
        if not mine.any():
            continue
        found = classifiers[client].predict(made.test_images(predictions.row[mine]))
        np.testing.assert_array_equal(found.probabilities.argmax(-1), predictions.predicted[mine])
        of_label = found.probabilities[np.arange(mine.sum()), predictions.label[mine]]
        np.testing.assert_allclose(of_label, np.exp(-predictions.loss[mine]), atol=1e-5)
        checked += 1
    assert checked >= 4
    held_out = {client["name"] for client in run.summary["joined"]["clients"]}
    assert held_out


@pytest.mark.parametrize("kind", [*NEEDS_DATA, "fedotp", "pfedmoap"])
def test_the_data_are_needed_only_where_the_method_looks_at_them(
    made: Made, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made.run(kind)

    def nowhere(*_: object, **__: object) -> None:
        raise FedotpError("no data set here")

    monkeypatch.setattr("fedotp.runs.one._inputs.load_dataset", nowhere)
    if kind in NEEDS_DATA:
        with pytest.raises(FedotpError, match="needs the client's own images for predictions: no data set here"):
            load(run.path, "client-0")
    else:
        assert load(run.path, "client-0").client == "client-0"


def test_a_client_that_joined_later(made: Made, tmp_path: Path) -> None:
    shutil.copytree(made.run("fedotp").path, tmp_path / "run")
    shutil.copytree(made.inputs / "data" / "night", tmp_path / "site")
    result = join(tmp_path / "run", tmp_path / "site", epochs=3)
    classifier = fedotp.load(tmp_path / "run", "site")
    test = fedotp.data.load_dataset(str(tmp_path / "site")).test
    found = classifier.predict([test.image(i) for i in range(len(test))])
    right = np.array(found.labels) == np.array(sorted(("red", "green", "blue")))[test.labels]
    assert right.mean() == result["after"]["accuracy"]
    other = classifier.predictor.params["private"] - load(tmp_path / "run", "client-0").predictor.params["private"]
    assert other.abs().max() > 0


def test_clients_are_found_by_name(made: Made) -> None:
    path = made.run("fedotp").path
    with pytest.raises(FedotpError, match="has no client 'client_1'; did you mean client-1 or"):
        fedotp.load(path, "client_1")
    with pytest.raises(FedotpError, match="with --client; its clients are client-0, client-1, client-2"):
        fedotp.load(path)
    with pytest.raises(FedotpError, match=r"nowhere is neither a run nor a bundle: .* see `fedotp run`"):
        fedotp.load("nowhere")
    with pytest.raises(FedotpError, match=r"runs is neither a run nor a bundle: .* the runs .*runs/fedotp"):
        fedotp.load(path.parent)


def test_a_server_of_real_sites_has_no_private_prompts(made: Made, tmp_path: Path) -> None:
    """What a site keeps must not be replaced by an untrained prompt."""
    for kind in ("fedotp", "promptfl"):
        shutil.copytree(made.run(kind).path, tmp_path / kind)
        run = RunDirectory(tmp_path / kind)
        run.save_manifest(run.manifest | {"deployment": {}})
    with pytest.raises(FedotpError, match="private parameters of client-1 are stored only at that site"):
        fedotp.load(tmp_path / "fedotp", "client-1")
    here, there = (fedotp.load(path, "client-1") for path in (made.run("promptfl").path, tmp_path / "promptfl"))
    torch.testing.assert_close(there.predictor.classes[0], here.predictor.classes[0])


def test_new_class_names_stand_behind_the_learned_vectors(made: Made) -> None:
    classifier = fedotp.load(made.run("fedotp").path, "client-1")
    (picture,) = made.test_images(np.arange(1))
    changed = classifier.with_classes(["a dog", " cat ", "blue"])
    assert changed.classes == ("a dog", "cat", "blue")
    context = torch.cat([classifier.predictor.params["shared"], classifier.predictor.params["private"]], dim=1)
    expected = PromptEncoder(classifier.tower, ["a dog", "cat", "blue"], n_ctx=2).encode_plain(context)[0]
    torch.testing.assert_close(changed.predictor.classes[0], expected / expected.norm(dim=-1, keepdim=True))
    same = classifier.with_classes(classifier.classes)
    np.testing.assert_allclose(
        same.predict(picture).probabilities, classifier.predict(picture).probabilities, atol=1e-7
    )
    for names, complaint in (
        (["cat"], "at least two class names"),
        (["cat", "cat"], "'cat' is given twice"),
        (["cat", " "], "'' is empty"),
        (["cat", "dog " * 90], "is too long"),
    ):
        with pytest.raises(FedotpError, match=complaint):
            classifier.with_classes(names)
    with pytest.raises(FedotpError, match="separate vectors for each of the trained classes"):
        fedotp.load(made.run("fedotp, per class").path, "client-0").with_classes(["cat", "dog"])


@pytest.mark.parametrize("kind", ["promptfolio", "fedpgp"])
def test_new_class_names_with_prompts_made_of_parts(made: Made, tmp_path: Path, kind: str) -> None:
    """Of a bundle, which has to keep the parts."""
    fedotp.load(made.run(kind).path, "client-1").save(tmp_path / "bundle")
    classifier = fedotp.load(tmp_path / "bundle", backbone=made.backbone)
    params, names = classifier.predictor.params, ["a dog", "blue"]
    changed = classifier.with_classes(names)
    encoder = PromptEncoder(classifier.tower, names, n_ctx=2)
    if kind == "fedpgp":
        mixed = _unit(encoder.encode_plain(params["prompt"] + params["u"] @ params["v"])[0, 0])
    else:
        shared, own = (_unit(encoder.encode_plain(params[name])[0, 0]) for name in ("prompt", "private"))
        mixed = 0.6 * shared + 0.4 * own
    (picture,) = made.test_images(np.arange(1))
    scores = _unit(changed.encode([picture]).pooled) @ mixed.T
    expected = (scores * classifier.task.logit_scale.exp()).softmax(-1)
    np.testing.assert_allclose(changed.predict(picture).probabilities, expected.detach().numpy(), atol=1e-5)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def test_maps_are_similarities_and_the_plan(made: Made) -> None:
    classifier = fedotp.load(made.run("fedotp").path, "client-2")
    (picture,) = made.test_images(np.arange(1))
    features = classifier.encode([picture])
    maps = classifier.explain(picture, "green")
    assert maps.kinds == ("global", "local")
    tokens = features.tokens[0].double().numpy()
    tokens /= np.linalg.norm(tokens, axis=-1, keepdims=True)
    expected = (
        tokens @ classifier.predictor.classes[0][:, classifier.classes.index("green")].double().numpy().T
    )  # (V, N)
    np.testing.assert_allclose(maps.similarity.reshape(2, -1), expected.T, atol=1e-5)
    np.testing.assert_allclose(maps.plan.sum((1, 2)), 0.4, atol=1e-6)  # mass / N
    assert maps.plan.sum(0).max() <= 1 / 16 + 1e-6
    half = classifier.explain(features, "green", mass=0.5)
    np.testing.assert_allclose(half.plan.sum((1, 2)), 0.25, atol=1e-6)
    np.testing.assert_array_equal(half.similarity, maps.similarity)
    assert classifier.explain(picture).label == classifier.predict(picture).labels[0]
    with pytest.raises(FedotpError, match="unknown class 'mauve'; the classes are"):
        classifier.explain(picture, "mauve")
    with pytest.raises(FedotpError, match=r"mass = 1\.5: must be from"):
        classifier.explain(picture, mass=1.5)


def test_the_score_comes_from_the_plan(made: Made) -> None:
    """The probability is the softmax of <T, S> over classes, T and S as explained (Eq. 10)."""
    classifier = fedotp.load(made.run("fedotp").path, "client-2").with_mass(0.6)
    (picture,) = made.test_images(np.arange(1))
    scores = []
    for label in classifier.classes:
        maps = classifier.explain(picture, label)
        scores.append((maps.plan * maps.similarity).sum())
    weights = np.exp(float(classifier.task.logit_scale.exp()) * (np.array(scores) - max(scores)))
    np.testing.assert_allclose(classifier.predict(picture).probabilities[0], weights / weights.sum(), atol=1e-5)
