"""Paired differences, their intervals and p, against SciPy and against what an interval promises."""

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from fedotp.runs.tables._differences import Pair, bound, holm, paired, within

SHARES = st.floats(0, 1, allow_subnormal=False)


@given(st.floats(0, 1e3), st.integers(1, 300))
def test_within(t: float, degrees: int) -> None:
    expected = scipy.stats.t.cdf(t, degrees) - scipy.stats.t.cdf(-t, degrees)
    assert within(t, degrees) == pytest.approx(expected, abs=1e-12)


@given(st.floats(0.01, 0.999), st.integers(1, 300))
def test_bound(share: float, degrees: int) -> None:
    assert bound(share, degrees) == pytest.approx(scipy.stats.t.interval(share, degrees)[1], rel=1e-9)


@given(st.lists(st.tuples(SHARES, SHARES), min_size=2, max_size=12), st.booleans())
def test_one_seed_a_split_or_one_split_is_the_paired_t_test(values: list[tuple[float, float]], seeds: bool) -> None:
    ours, theirs = ({(0, i) if seeds else (i, 0): pair[who] for i, pair in enumerate(values)} for who in (0, 1))
    found = paired(ours, theirs)
    assert found is not None
    assert (found.pairs, found.groups) == (len(values), 1 if seeds else len(values))
    differences = np.subtract(*np.array(values).T)
    assert found.mean == pytest.approx(differences.mean(), abs=1e-12)
    if np.ptp(differences) < 1e-9:
        return
    test = scipy.stats.ttest_rel(*np.array(values).T)
    assert found.p == pytest.approx(test.pvalue, abs=1e-9)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval()), abs=1e-9)


def test_several_seeds_of_a_split_are_one_unit() -> None:
    draws = np.random.default_rng(0).random((2, 5, 3))
    ours, theirs = ({(s, k): values[s, k] for s in range(5) for k in range(3)} for values in draws)
    found = paired(ours, theirs)
    means = (draws[0] - draws[1]).mean(1)
    assert found is not None
    assert (found.pairs, found.groups) == (15, 5)
    assert (found.low, found.high) == pytest.approx(
        scipy.stats.t.interval(0.95, 4, means.mean(), scipy.stats.sem(means))
    )
    assert found.p == pytest.approx(scipy.stats.ttest_1samp(means, 0).pvalue)


def test_only_pairs_count() -> None:
    found = paired({(0, 0): 0.5, (0, 1): 0.9, (3, 0): 0.1}, {(0, 0): 0.25, (0, 2): 0.0, (1, 0): 0.0})
    assert found is not None
    assert (found.mean, found.low, found.high, found.p, found.pairs, found.groups) == (0.25, None, None, None, 1, 1)
    assert not found.is_above
    assert paired({(0, 0): 0.5}, {(1, 0): 0.5}) is None


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.125, 0.0), (-0.125, 0.0)])
def test_differences_without_any_spread(value: float, p: float) -> None:
    found = paired({(i, 0): 0.5 + value for i in range(3)}, {(i, 0): 0.5 for i in range(3)})
    assert found is not None
    assert (found.low, found.high, found.p) == (value, value, p)
    assert (found.is_above, found.is_below) == (value > 0, value < 0)


def test_rounding_is_no_difference() -> None:
    found = paired({(i, 0): 0.1 + 0.2 for i in range(3)}, {(i, 0): 0.3 for i in range(3)})
    assert found is not None
    assert (found.mean, found.p, found.is_above) == (0, 1, False)


def test_intervals_hold_the_true_difference_as_often_as_they_promise() -> None:
    """Splits favour one or the other method: intervals over pairs as if they were independent would be too short."""
    draws = np.random.default_rng(0)
    truth, n_splits, n_seeds, n_trials = 0.01, 6, 2, 1500
    hits = naive = 0
    for _ in range(n_trials):
        values = truth + 0.02 * draws.standard_normal((n_splits, 1)) + 0.01 * draws.standard_normal((n_splits, n_seeds))
        ours: dict[Pair, float] = {(s, k): float(values[s, k]) for s in range(n_splits) for k in range(n_seeds)}
        found = paired(ours, dict.fromkeys(ours, 0.0))
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= truth <= found.high
        low, high = scipy.stats.t.interval(0.95, values.size - 1, values.mean(), scipy.stats.sem(values.ravel()))
        naive += low <= truth <= high
    assert hits / n_trials == pytest.approx(0.95, abs=0.02)
    assert naive / n_trials < 0.90


@given(st.lists(SHARES, min_size=1, max_size=8))
def test_holm(p: list[float]) -> None:
    """By its definition: reject the smallest as long as p_(i) <= level / (n - i)."""
    adjusted = holm(p)
    assert all(one <= both for one, both in zip(p, adjusted, strict=True))
    for level in (0.01, 0.05, 0.3):
        rejected = set()
        for rank, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
            if p[place] * (len(p) - rank) > level:
                break
            rejected.add(place)
        assert rejected == {place for place, value in enumerate(adjusted) if value <= level}
