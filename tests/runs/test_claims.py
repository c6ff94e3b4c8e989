"""How the paper's claims are judged: `recipes.claims`."""

import random
from pathlib import Path

import pytest
import scipy
from recipes.claims.claims import CLAIMS
from recipes.claims.data import Results
from recipes.claims.judge import Comparison, Judged, Verdict, Word, judge, verdict
from recipes.claims.page import all_lines, fill, tables
from recipes.claims.settings import CHOOSING, SETTINGS, asked
from recipes.claims.study import Lines, best_rates

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "claims.md"
RUNS, FIELD = DOCS / "results" / "claims", DOCS / "results" / "field"
PAIRS = [(split, seed) for split in range(6) for seed in range(2)]


def comparison(mean: float, spread: float, seed: int = 0) -> Comparison:
    """A difference of about `mean` between two series that have the difficulty of their splits in common."""
    drawn = random.Random(seed)
    hard = {pair: drawn.gauss(0.8, 0.05) for pair in PAIRS}
    ours = {pair: hard[pair] + mean + drawn.gauss(0, spread) for pair in PAIRS}
    return Comparison("row", "column", ours, hard)


@pytest.mark.parametrize(
    ("mean", "spread", "word"),
    [
        (0.01, 0.001, Word.AHEAD),
        (0.002, 0.0005, Word.AHEAD),
        (-0.01, 0.001, Word.BEHIND),
        (0.0, 0.002, Word.SMALL),
        (0.0, 0.05, Word.OPEN),
    ],
)
def test_words(mean: float, spread: float, word: Word) -> None:
    (found,) = judge([comparison(mean, spread)])
    assert found.word is word


def test_the_interval_is_the_paired_t_tests_over_splits() -> None:
    each = comparison(0.004, 0.01)
    (found,) = judge([each])
    units = [sum(each.ours[split, seed] - each.theirs[split, seed] for seed in range(2)) / 2 for split in range(6)]
    low, high = scipy.stats.ttest_1samp(units, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def test_a_word_allows_for_all_comparisons_of_its_claim() -> None:
    alone = next(each for each in (comparison(0.004, 0.004, seed) for seed in range(99)) if _p(each) in (0.02, 0.04))
    (found,) = judge([alone])
    assert found.word is Word.AHEAD
    among = judge([alone, *(comparison(0.0, 0.05, seed) for seed in range(20))])
    assert among[0].word is not Word.AHEAD
    assert (among[0].low, among[0].high) == (found.low, found.high)


def _p(each: Comparison) -> float:
    units = [sum(each.ours[split, seed] - each.theirs[split, seed] for seed in range(2)) for split in range(6)]
    return round(float(scipy.stats.ttest_1samp(units, 0).pvalue), 2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([Word.AHEAD, Word.AHEAD], Verdict.HOLDS),
        ([Word.AHEAD, Word.OPEN], Verdict.OPEN),
        ([Word.AHEAD, Word.SMALL], Verdict.NOT),
        ([Word.OPEN, Word.BEHIND], Verdict.NOT),
    ],
)
def test_verdicts(words: list[Word], expected: Verdict) -> None:
    assert verdict([Judged("", "", 0, 0, 0, word) for word in words]) == expected


def test_every_run_that_is_asked_for_is_another_one() -> None:
    every = [run for name in (*CHOOSING, *SETTINGS) for run in asked(name, {}, device="cpu", toy=True)]
    assert len({run.key for run in every}) == len({run.trial.name for run in every}) == len(every)


def test_each_method_has_the_rate_that_was_best_on_other_splits(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "runs.csv", ("setting", "value", "method", "split", "seed", "accuracy"))
    for rate, split, accuracy in (("0.1", 100, 0.7), ("0.1", 101, 0.8), ("0.03", 100, 0.9), ("0.03", 101, 0.5)):
        lines.add([("rates-dirichlet", rate, "fedotp", split, 0, accuracy)])
    lines.add([("alpha", "1", "fedotp", 0, 0, 0.99)])
    rates = best_rates(lines.path)
    assert rates == {("rates-dirichlet", "fedotp"): 0.1}
    for name, method in (("alpha", "fedotp"), ("dirichlet-mass", "fedotp:mass=0.5")):
        configs = [run.trial.config for run in asked(name, rates, device="cpu", toy=True) if run.key[2] == method]
        assert {config.optimizer.lr for config in configs} == {0.1}
        assert not {100, 101} & {config.partition.seed for config in configs}


def test_the_page_is_what_the_recorded_runs_give() -> None:
    assert fill(PAGE.read_text(), tables(RUNS, FIELD)) == PAGE.read_text()
    assert (RUNS / "tables.csv").read_text() == all_lines(RUNS, FIELD)


@pytest.mark.parametrize(
    ("name", "expected"), [("transport", Verdict.NOT), ("unbalanced", Verdict.HOLDS), ("mass", Verdict.NOT)]
)
def test_what_came_with_the_results_decides_nothing(name: str, expected: Verdict) -> None:
    (claim,) = (claim for claim in CLAIMS if claim.name == name)
    results = Results(RUNS, FIELD)
    judged = claim.judged(results)
    assert verdict(judged) == expected
    assert not any(each.recorded for each in judged)
    assert claim.added is not None
    assert sum(each.recorded for each in claim.added(results)) == 3
    assert "recorded" not in tables(RUNS, FIELD)[name]


def test_the_page_has_a_place_for_every_claim() -> None:
    tested = {claim.name: (n, claim.says) for n, claim in enumerate(CLAIMS, 1) if claim.is_tested}
    filled = fill(PAGE.read_text(), {name: f"table of {name}" for name in tested})
    assert all(f'<a id="{name}"></a>\n\n### {n}. {says}\n' in filled for name, (n, says) in tested.items())
    assert filled.count("table of ") == len(tested)
    with pytest.raises(ValueError, match="nowhere"):
        fill(filled, {"nowhere": ""})
