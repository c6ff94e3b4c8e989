"""What docs/limits.md says is what was measured, and the study measures it as its words say."""

from pathlib import Path

import numpy as np
import pytest
from recipes.limits import study, tables
from recipes.limits.scores import false_positive_rate

ROOT = Path(__file__).parents[2]
COVERAGE, OUTLIERS = (tables.read(ROOT / study.OUT / f"{name}.csv") for name in ("coverage", "outliers"))
PAGE = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")


def test_coverage_is_within_two_points_of_what_was_promised() -> None:
    assert len({(row["data"], row["split"], row["method"]) for row in COVERAGE}) == 2 * 6 * 3
    assert study.HALVES == 200
    assert tables.farthest(COVERAGE) < 0.02


def test_strangers_are_found_in_both_directions() -> None:
    for data in study.DATA:
        found = [row for row in OUTLIERS if row["data"] == data and row["score"] == "look"]
        assert len(tables.by_split(found, "auroc")) == 6
        assert tables.by_split(found, "auroc").min() > 0.9


def test_the_page_shows_these_numbers() -> None:
    for table in (
        tables.coverage_table(COVERAGE),
        tables.outlier_table(OUTLIERS, "auroc"),
        tables.flag_table(OUTLIERS),
    ):
        assert table.strip() in PAGE, table
    assert f"by at most {100 * tables.farthest(COVERAGE):.1f} points" in PAGE
    (line,) = [row for row in tables.score_table(COVERAGE).splitlines() if row.startswith("| emoji | 90 %")]
    lac, aps, randomised = (cell.split()[0] for cell in line.strip("| ").split("|")[2:])
    assert f"{lac} classes, `aps` {aps}, randomised `aps` {randomised}" in PAGE
    rates = tables.outlier_table(OUTLIERS, "fpr95").splitlines()
    (look,) = [row.strip("| ").split(" | ") for row in rates if row.startswith("| look |")]
    assert f"for FedOTP {look[1].split()[0]} and {look[4].split()[0]} by `look`" in PAGE


def judged(n: int, seed: int, away: float = 0) -> tuple[study.Judged, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 4))
    probabilities = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    labels = np.array([rng.choice(4, p=row) for row in probabilities])
    return study.Judged(scores, probabilities, away + rng.normal(size=(n, 6))), labels


def test_rows_of_coverage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "HALVES", 60)
    rows = list(study.coverage_rows({"a": judged(60, 0), "b": judged(81, 1)}, seed=0))
    assert len(rows) == 3 * 3 * (2 * 2 + 1)
    for row in rows:
        assert 0 <= row["low"] <= row["high"] <= 1
        assert row["never_empty"] >= row["coverage"]
        if row["calibrated_by"] == "own":
            assert row["images"] == {"a": 30, "b": 40}[row["client"]]
            assert row["coverage"] == pytest.approx(row["expected"], abs=0.04)
    inside = [row["low"] <= row["coverage"] <= row["high"] for row in rows]
    assert np.mean(inside) > 0.8  # not all: one division in sixty moves the mean below both quantiles
    by_score = [[row["size"] for row in rows if row["score"] == score] for score in ("lac", "aps, randomised", "aps")]
    assert np.mean(by_score[0]) < np.mean(by_score[1]) < np.mean(by_score[2])


def test_rows_of_strangers() -> None:
    own, strangers = judged(90, 0)[0], judged(70, 1, away=9)[0]
    rows = {row["score"]: row for row in study.outlier_rows("a", own, strangers, 40.0, seed=0)}
    for score in ("look", "mahalanobis"):
        assert (rows[score]["auroc"], rows[score]["fpr95"]) == (1, 0)
    assert rows["look"]["flagged_strangers"] == 1
    for score in (
        "probability",
        "mcm",
        "logit",
        "energy",
    ):  # these strangers match classes as well as the own images do
        assert 0.35 < rows[score]["auroc"] < 0.65


def test_a_false_positive_is_a_stranger_among_95_of_100_own_images() -> None:
    own = np.arange(100.0)
    assert false_positive_rate(own, np.array([-5.0, 0, 95, 96, 200])) == pytest.approx(0.6)
