"""The lower bound on epsilon against SciPy, and against mechanisms whose epsilon is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from fedotp.audit._bound import epsilon_from_below, luck, refuted
from fedotp.errors import SettingError

LEVEL = 0.05


def authors_luck(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2 as one would write it down with SciPy, term by term."""
    w = stats.binom(r, 1 / (1 + math.exp(-epsilon)))
    i = np.arange(1, m + 1)
    alpha = ((w.cdf(v - 1) - w.cdf(v - i - 1)) / i).max()
    return min(1.0, w.sf(v - 1) + 2 * m * delta * alpha)


outcomes = st.integers(1, 60).flatmap(
    lambda m: st.integers(1, m).flatmap(lambda r: st.tuples(st.just(m), st.just(r), st.integers(0, r)))
)
epsilons = st.floats(0, 8)
deltas = st.sampled_from([0.0, 1e-6, 1e-3, 0.01])


@settings(deadline=None, max_examples=50)
@given(outcomes, epsilons, deltas)
def test_luck_is_that_of_the_theorem(outcome, epsilon, delta):
    m, r, v = outcome
    assert luck(m, r, v, epsilon, delta) == pytest.approx(authors_luck(m, r, v, epsilon, delta), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize(("m", "r", "v", "delta"), [(1000, 1000, 900, 1e-5), (480, 120, 120, 0.0), (40, 20, 18, 1e-4)])
def test_refuted_epsilon_is_a_root(m, r, v, delta):
    root = optimize.brentq(lambda epsilon: authors_luck(m, r, v, epsilon, delta) - LEVEL, 0, 20, xtol=1e-10)
    assert refuted(m, r, v, delta, LEVEL) == pytest.approx(root, abs=1e-7)


def randomized_response(epsilon, m, stream):
    """Scores and the coins: the epsilon of this mechanism is exact, no smaller one is true."""
    included = stream.random(m) < 0.5
    answers = np.where(stream.random(m) < 1 / (1 + math.exp(-epsilon)), included, ~included)
    return answers + 0.5 * stream.random(m), included


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("candidates", [(200,), ()], ids=["all guessed", "number chosen"])
def test_bound_of_randomized_response_is_below_and_near(epsilon, candidates):
    stream = np.random.default_rng(1)
    trials = [randomized_response(epsilon, 200, stream) for _ in range(100)]
    bounds = [epsilon_from_below(*trial, 0.0, candidates=candidates).epsilon for trial in trials]
    # 95 % in the long run: of 100 trials fewer than 90 would be below once in a hundred times
    assert sum(bound <= epsilon for bound in bounds) >= 90
    assert np.median(bounds) >= 0.6 * epsilon - 0.1


def test_the_choice_among_numbers_of_guesses_is_paid_for():
    """Scores that say nothing: a choice that costs nothing would refute 0 in far more than 5 % of the trials."""
    stream = np.random.default_rng(2)
    trials = [(stream.random(256), stream.random(256) < 0.5) for _ in range(100)]
    chosen = [epsilon_from_below(*trial, 0.0).epsilon > 0 for trial in trials]
    free = [any(epsilon_from_below(*trial, 0.0, candidates=(r,)).epsilon > 0 for r in (256, 128, 64, 32, 16))
            for trial in trials]  # fmt: skip
    assert np.mean(chosen) <= 0.07 < np.mean(free)


def test_the_most_extreme_are_guessed():
    scores = np.array([9.0, 0.1, 0.0, -0.1, -9.0, 8.0])
    included = np.array([True, False, True, True, False, True])
    bound = epsilon_from_below(scores, included, 0.0, candidates=(3,))
    assert (bound.guesses, bound.right, bound.included, bound.canaries) == (3, 3, 4, 6)


@pytest.mark.parametrize(("delta", "confidence"), [(-0.1, 0.95), (1.0, 0.95), (0.0, 0.0), (0.0, 1.0)])
def test_what_cannot_be_is_refused(delta, confidence):
    with pytest.raises(SettingError, match="must be in"):
        epsilon_from_below(np.zeros(20), np.zeros(20, bool), delta, confidence=confidence)
