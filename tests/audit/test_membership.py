"""Area under the curve and rates against scikit-learn; intervals against what they promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from fedotp.audit._membership import Allowed, separate

few = st.lists(st.integers(0, 6), min_size=1, max_size=12).map(lambda values: np.array(values, np.float64))
clients = st.lists(st.tuples(few, few), min_size=1, max_size=4)


def marks(members, others):
    return np.repeat([1, 0], [len(members), len(others)]), np.concatenate([members, others])


@settings(deadline=None, max_examples=25)
@given(clients)
def test_area_is_scikit_learns(scores):
    found = separate(scores, resamples=3)
    areas = [roc_auc_score(*marks(*one)) for one in scores]
    assert [one.value for one in found.by_client] == pytest.approx(areas, abs=1e-12)
    weights = [len(members) * len(others) / (len(members) + len(others)) for members, others in scores]
    assert found.auc.value == pytest.approx(np.average(areas, weights=weights), abs=1e-12)


@settings(deadline=None, max_examples=25)
@given(clients, st.sampled_from([0.1, 0.25, 0.5]))
def test_rates_are_scikit_learns(scores, share):
    found = separate(scores, shares=(share,), resamples=3)
    n_others = sum(len(others) for _, others in scores)
    if share * n_others < 1:
        assert not found.tpr
        return
    weights = []
    for members, others in scores:
        own = len(members) * len(others) / (len(members) + len(others))
        weights += [own / len(members)] * len(members) + [own / len(others)] * len(others)
    labels, values = (np.concatenate(parts) for parts in zip(*(marks(*one) for one in scores), strict=True))
    fpr, tpr, _ = roc_curve(labels, values, sample_weight=weights, drop_intermediate=False)
    assert found.tpr[share].value == pytest.approx(tpr[fpr <= share + 1e-12].max(), abs=1e-9)


def test_intervals_hold_what_they_promise():
    """Members are higher by half a standard deviation: the area is Phi(0.5 / sqrt(2)) = 0.638."""
    stream = np.random.default_rng(0)
    hits = 0
    for trial in range(100):
        scores = [(stream.normal(0.5 + shift, 1, 40), stream.normal(shift, 1, 30)) for shift in (0, 5)]
        auc = separate(scores, seed=trial, resamples=200).auc
        hits += auc.low <= 0.6382 <= auc.high
    assert 87 <= hits <= 100  # 95 in the long run


def test_what_differs_between_clients_is_not_membership():
    """One client has many members and high scores, the other many others and low ones; within each it is chance."""
    stream = np.random.default_rng(1)
    scores = [(stream.normal(9, 1, 300), stream.normal(9, 1, 30)), (stream.normal(0, 1, 30), stream.normal(0, 1, 300))]
    found = separate(scores, resamples=200)
    assert found.auc.low <= 0.5 <= found.auc.high
    assert found.tpr[0.1].low <= 0.1 <= found.tpr[0.1].high
    assert roc_auc_score(*marks(*map(np.concatenate, zip(*scores, strict=True)))) > 0.7  # what pooling would say


def test_clients_without_members_or_others_do_not_count():
    none = np.empty(0)
    assert separate([(none, np.ones(3)), (np.ones(3), none)]) is None
    found = separate([(none, np.ones(3)), (np.ones(4), np.zeros(2))], resamples=5)
    assert found.by_client[0] is None
    assert (found.members, found.others, found.auc.value) == (4, 2, 1.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (2.0, 1e-3)])
def test_what_is_allowed_is_what_randomized_response_reaches(epsilon, delta):
    """With delta 0 no attack on randomized response does better than its answer; the ROC has one corner."""
    allowed = Allowed.by(epsilon, delta, (0.01, 0.5))
    corner = 1 / (1 + np.exp(epsilon))
    if not delta:
        fpr, tpr = [0, corner, 1], [0, 1 - corner, 1]
        assert allowed.auc == pytest.approx(np.trapezoid(tpr, fpr), abs=1e-6)
        assert allowed.tpr == pytest.approx({share: np.interp(share, fpr, tpr) for share in (0.01, 0.5)})
    assert allowed.tpr[0.01] == pytest.approx(np.exp(epsilon) * 0.01 + delta)
    assert Allowed.by(np.inf, 0.0, (0.01,)).auc == pytest.approx(1.0, abs=1e-4)
