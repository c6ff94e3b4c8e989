"""Numbers from predictions, against scikit-learn and by hand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedotp.federation import METRICS, Metric
from fedotp.federation.testing import Evaluation, Predictions

DOMAINS = ("a", "b", "a", None, "b", "a")


@st.composite
def predictions(draw: st.DrawFn, n_classes: int = 4) -> Predictions:
    lines = draw(
        st.lists(
            st.tuples(st.integers(0, 5), st.integers(0, n_classes - 1), st.integers(0, n_classes - 1)),
            min_size=1,
            max_size=40,
        )
    )
    client, label, predicted = (np.array(column, np.int64) for column in zip(*lines, strict=True))
    loss = np.linspace(0, 2, len(lines))
    return Predictions(client, np.arange(len(lines)), label, predicted, loss)


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true", "ignore:A single label was found")
@given(predictions())
def test_accuracy_balanced_accuracy_and_macro_f1_are_those_of_scikit_learn(p: Predictions) -> None:
    from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

    evaluation = Evaluation.of(p, 4, DOMAINS)
    assert evaluation.clients.tolist() == sorted(set(p.client.tolist()))
    for i, client in enumerate(evaluation.clients):
        mine = p.client == client
        truth, guess = p.label[mine], p.predicted[mine]
        assert evaluation.n[i] == mine.sum()
        assert evaluation.accuracy[i] == pytest.approx(accuracy_score(truth, guess), abs=1e-12)
        expected = f1_score(truth, guess, average="macro", labels=np.unique(truth))
        assert evaluation.values["macro_f1"][i] == pytest.approx(expected, abs=1e-12)
        expected = balanced_accuracy_score(truth, guess)
        assert evaluation.values["balanced_accuracy"][i] == pytest.approx(expected, abs=1e-12)
        assert evaluation.values["loss"][i] == pytest.approx(p.loss[mine].mean(), abs=1e-12)
    for k in range(4):
        ours, of_class = evaluation.class_accuracy[k], p.label == k
        assert np.isnan(ours) if not of_class.any() else ours == pytest.approx((p.predicted == k)[of_class].mean())
    assert evaluation.pooled == pytest.approx(accuracy_score(p.label, p.predicted))
    assert evaluation.mean == pytest.approx(np.mean(evaluation.accuracy))
    assert json.loads(json.dumps(evaluation.as_dict(), allow_nan=False))["n"] == evaluation.n.tolist()


def of_accuracies(accuracy: list[float]) -> Evaluation:
    values, n = np.array(accuracy), len(accuracy)
    return Evaluation(np.arange(n), np.ones(n, np.int64), dict.fromkeys(METRICS, values), values, {})


def test_fairness_by_hand() -> None:
    values = [0.9, 0.1, 0.5, 0.7] + [1.0] * 21
    evaluation = of_accuracies(values)
    assert evaluation.worst_decile == pytest.approx((0.1 + 0.5) / 2)  # 25 clients: the worst two
    assert evaluation.std == pytest.approx(np.sqrt(np.mean((np.array(values) - np.mean(values)) ** 2)))
    assert evaluation.totals()["accuracy_min"] == 0.1
    assert of_accuracies([0.4, 0.2, 0.9]).worst_decile == pytest.approx(0.2)  # at least one


def test_domains_by_hand() -> None:
    client = np.array([0, 0, 1, 2, 3, 4])
    right = np.array([1, 0, 1, 1, 0, 0])
    p = Predictions(client, client, np.ones(6, np.int64), right, np.zeros(6))
    domains = Evaluation.of(p, 2, DOMAINS).domains()
    assert domains == {
        "a": {"accuracy": 0.75, "accuracy_std": 0.25, "clients": 2},
        "b": {"accuracy": 0.5, "accuracy_std": 0.5, "clients": 2},
    }


def test_unknown_metrics_are_left_out_of_the_mean() -> None:
    evaluation = of_accuracies([0.25, 0.75])
    evaluation.values["macro_f1"] = np.array([0.5, np.nan])
    evaluation.values["balanced_accuracy"] = evaluation.values["loss"] = np.full(2, np.nan)
    assert evaluation.totals()["macro_f1"] == 0.5
    assert "loss" not in evaluation.totals()
    assert evaluation.of_client(1) == {"accuracy": 0.75}
    written = json.loads(json.dumps(evaluation.as_dict(), allow_nan=False))
    assert written["client_macro_f1"] == [0.5, None]
    np.testing.assert_array_equal(Evaluation.from_dict(written).values["macro_f1"], [0.5, np.nan])


@given(predictions())
def test_a_metric_is_added_by_one_entry(p: Predictions) -> None:
    before = Evaluation.of(p, 4, DOMAINS).as_dict()
    metric = Metric("loss_squared", "squared loss", lambda tested: tested.mean(tested.loss**2), range=(0, np.inf))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METRICS, metric.key, metric)
        evaluation = Evaluation.of(p, 4, DOMAINS)
        for i, client in enumerate(evaluation.clients):
            expected = (p.loss[p.client == client] ** 2).mean()
            assert evaluation.of_client(i)["loss_squared"] == pytest.approx(expected, abs=1e-12)
        assert set(evaluation.as_dict()) - set(before) == {"loss_squared", "client_loss_squared"}
        old = Evaluation.from_dict(before)
    assert np.isnan(old.values["loss_squared"]).all()
    assert "loss_squared" not in old.totals()
