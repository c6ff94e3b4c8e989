"""Prediction sets: against MAPIE, against the definition, and the promise itself, which is exact and can be counted."""

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedotp.errors import FedotpError
from fedotp.limits import Score, least_images, prediction_sets, threshold
from fedotp.limits._conformal import SCORES, nonconformity, rank

COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)


class Known:
    """To MAPIE a classifier whose probabilities are what it is asked about."""

    def __init__(self, n_classes: int) -> None:
        self.classes_ = np.arange(n_classes)

    def fit(self, *_: Any) -> "Known":
        return self

    def predict_proba(self, given: np.ndarray) -> np.ndarray:
        return given

    def predict(self, given: np.ndarray) -> np.ndarray:
        return given.argmax(-1)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def drawn(n: int, n_classes: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (n, K), and labels (n,) that follow them only loosely."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.4), n)
    return p, np.array([rng.choice(n_classes, p=0.8 * row + 0.2 / n_classes) for row in p])


def of_true(p: np.ndarray, y: np.ndarray, score: Score, draws: np.ndarray | None = None) -> np.ndarray:
    return np.sort(nonconformity(p, score, draws)[np.arange(len(y)), y])


@pytest.mark.parametrize("coverage", COVERAGES)
@pytest.mark.parametrize(("score", "n"), [("lac", 101), ("lac", 157), ("aps", 120)])
def test_sets_are_those_of_mapie(score: Score, n: int, coverage: float) -> None:
    """Its calibration of aps is the randomised one; its sets without the last class are ours that are never empty."""
    from mapie.classification import SplitConformalClassifier  # brings scikit-learn

    p, y = drawn(n + 200)
    other = SplitConformalClassifier(
        Known(6), confidence_level=coverage, conformity_score=score, prefit=True, random_state=3
    )
    other.conformalize(p[:n], y[:n])
    draws = 1 - np.random.RandomState(3).uniform(size=n) if score == "aps" else None
    q = threshold(of_true(p[:n], y[:n], score, draws), coverage)
    options = {"conformity_score_params": {"include_last_label": False}} if score == "aps" else {}
    theirs = other.predict_set(p[n:], **options)[1][:, :, 0]
    np.testing.assert_array_equal(prediction_sets(p[n:], q, score, may_be_empty=score == "lac"), theirs)


@pytest.mark.parametrize("score", SCORES)
def test_scores_by_their_definition(score: Score) -> None:
    p, _ = drawn(40)
    draws = np.random.default_rng(1).random(40)
    for row, found, u, randomised in zip(
        p, nonconformity(p, score), draws, nonconformity(p, score, draws), strict=True
    ):
        for k in range(len(row)):
            before = sum(other for other in row if other > row[k])
            assert found[k] == pytest.approx(1 - row[k] if score == "lac" else before + row[k])
            assert randomised[k] == pytest.approx(1 - row[k] if score == "lac" else before + u * row[k])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.sampled_from([0.05, 0.1, 0.25, 1 / 3, 0.5, 0.7, 0.8, 0.9, 0.95]), st.integers(0, 10**6))
def test_the_promise_is_exact(n: int, coverage: float, seed: int) -> None:
    """Of n + 1 images any may be the new one: of all these choices exactly the promised number covers it."""
    scores = np.random.default_rng(seed).permutation(n + 1).astype(float)
    if n < least_images(coverage):
        with pytest.raises(FedotpError, match=f"at least {least_images(coverage)} calibration images"):
            threshold(np.sort(scores[1:]), coverage)
        return
    covered = sum(scores[new] <= threshold(np.sort(np.delete(scores, new)), coverage) for new in range(n + 1))
    assert covered == rank(n, coverage)
    assert coverage <= covered / (n + 1) < coverage + 1 / (n + 1) + 1e-12


@pytest.mark.parametrize("score", SCORES)
def test_the_promise_holds_on_average(score: Score) -> None:
    """With labels that follow the probabilities only loosely: 400 divisions of the same images."""
    p, y = drawn(300)
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(400):
        order = rng.permutation(300)
        known, new = order[:100], order[100:]
        q = threshold(of_true(p[known], y[known], score), 0.9)
        covered.append(prediction_sets(p[new], q, score, may_be_empty=True)[np.arange(200), y[new]].mean())
    assert np.mean(covered) == pytest.approx(rank(100, 0.9) / 101, abs=0.01)


@given(st.integers(0, 10**5), st.integers(1, 9999))
def test_a_coverage_is_the_decimal_number_that_was_written(n: int, tenthousandths: int) -> None:
    written = Decimal(tenthousandths).scaleb(-4)
    assert rank(n, float(written)) == math.ceil((n + 1) * written)
    least = least_images(float(written))
    assert rank(least, float(written)) <= least
    assert least == 0 or rank(least - 1, float(written)) > least - 1


def test_the_most_probable_class_is_always_in_it_unless_sets_may_be_empty() -> None:
    p = np.array([[0.5, 0.3, 0.2], [0.9, 0.06, 0.04]])
    assert prediction_sets(p, 0.2, may_be_empty=True).tolist() == [[False] * 3, [True, False, False]]
    assert prediction_sets(p, 0.2).tolist() == [[True, False, False]] * 2


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 1.5, math.nan, math.inf])
def test_no_coverage(coverage: float) -> None:
    with pytest.raises(FedotpError, match=r"^coverage = .* must be between 0 and 1"):
        rank(10, coverage)
    with pytest.raises(FedotpError, match="score = 'raps': must be lac or aps"):
        nonconformity(np.ones((1, 2)) / 2, "raps")  # type: ignore[arg-type]
