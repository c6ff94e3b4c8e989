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


def test_a_false_positive_is_a_stranger_among_95_of_100_own_images() -> None:
    own = np.arange(100.0)
    assert false_positive_rate(own, np.array([-5.0, 0, 95, 96, 200])) == pytest.approx(0.6)
