"""The study of unseen classes: who has what, what is measured, and that a study is whole."""

import numpy as np
import pytest
import torch
from recipes.unseen import study
from recipes.unseen.measure import measure_base, measure_novel
from recipes.unseen.table import Lines
from recipes.unseen.world import Division, Material, Scheme, deal
from toy_federation import SMALL, small_clip

from fedotp.federation import HeldFeatures

NAMES = tuple(f"class {letter}" for letter in "abcdefghij")


@pytest.fixture(scope="module")
def material() -> Material:
    """Ten classes with eight training and two test images each; it goes by the name of the one it stands for."""
    rng = torch.Generator().manual_seed(0)

    def images(n: int) -> HeldFeatures:
        pooled, tokens = (torch.randn(1, n, *shape, SMALL.embed_dim, generator=rng) for shape in ((), (4,)))
        return HeldFeatures(pooled, tokens)

    labels = [np.repeat(np.arange(10), n) for n in (8, 2)]
    return Material("cifar10-mini", small_clip(), NAMES, images(80), images(20), *labels)


@pytest.mark.parametrize("number", range(3))
def test_classes_are_divided_into_halves(material: Material, number: int) -> None:
    division = Division(material, number)
    assert sorted([*division.base, *division.novel]) == list(range(10))
    assert len(division.base) == 5
    if number < 2:
        assert division.names(division.base) == (NAMES[5:] if number else NAMES[:5])
    images, labels = division.images(division.novel)
    assert len(images.pooled) == 10
    assert [NAMES[division.novel[label]] for label in labels] == [NAMES[k] for k in division.novel for _ in range(2)]


@pytest.mark.parametrize("scheme", ["pairs", "dirichlet", "iid"])
def test_base_images_are_dealt_once_and_novel_ones_never(material: Material, scheme: Scheme) -> None:
    division = Division(material, 2)
    dealt = deal(division, scheme, 10, seed=1)
    rows = np.concatenate(dealt.data.train.clients)
    assert sorted(rows) == list(np.flatnonzero(np.isin(material.train_labels, division.base)))
    np.testing.assert_array_equal(division.base[dealt.data.train.labels[rows]], material.train_labels[rows])
    np.testing.assert_allclose(dealt.shares.sum(1), 1)
    if scheme == "pairs":
        assert ((dealt.shares > 0).sum(1) == 2).all()
        assert ((dealt.shares > 0).sum(0) == 4).all()


def test_what_is_measured_of_scores() -> None:
    """Restated client by client and image by image; the mean over classes is scikit-learn's."""
    from sklearn.metrics import balanced_accuracy_score

    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(2, 40, 4)), rng.permutation(np.repeat(np.arange(4), 10))
    own = [(0, 1), (1, 3)]
    shares = np.array([[0.5, 0.5, 0, 0], [0, 0.25, 0, 0.75]])
    found = measure_base(torch.from_numpy(scores), labels, shares)
    expected: dict[str, list[float]] = {name: [] for name in found}
    for c, classes in enumerate(own):
        called = scores[c].argmax(-1)
        expected["base"].append(balanced_accuracy_score(labels, called))
        each = [np.mean(called[labels == k] == k) for k in range(4)]
        expected["local"].append(sum(share * right for share, right in zip(shares[c], each, strict=True)))
        foreign = [i for i in range(40) if labels[i] not in classes]
        left = [k for k in range(4) if k not in classes]
        expected["other"].append(np.mean([called[i] == labels[i] for i in foreign]))
        expected["claimed"].append(np.mean([called[i] in classes for i in foreign]))
        expected["masked"].append(np.mean([left[scores[c, i, left].argmax()] == labels[i] for i in foreign]))
    assert found == pytest.approx({name: np.mean(values) for name, values in expected.items()})
    assert measure_novel(torch.from_numpy(scores), labels) == pytest.approx({"novel": np.mean(expected["base"])})


def test_a_study_is_whole(material: Material, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(study, "ROUNDS", (0, 1))
    lines = study.study(material, "iid", 3, (0, 1))
    study._append(tmp_path / "x.csv", lines)
    found = Lines.read(tmp_path / "x.csv")
    assert len(found.lines) == len(lines)
    assert found.values("method") == ["zeroshot", "fedotp", "promptfl", "coop"]
    paper = found.where(method="fedotp", lr=0.1, round=1, mass="")
    for view in ("local", "base", "novel"):
        assert paper.where(dial="").pairs(view) == pytest.approx(paper.where(dial=0.5).pairs(view))
        assert len(paper.where(dial="confidence").pairs(view)) == 2
    again = found.where(method="fedotp", lr=0.1, round=1, dial="", mass=0.8)
    assert again.less(paper.where(dial=""), "base").mean == pytest.approx(0)
